/** The errors of this package on the wire: each has a sentence for people, and an advice for clients. */
import { describe, expect, it } from 'vitest';
import { AwaitError, type AwaitErrorCode } from '../../src/base/values.ts';
import { INTERNAL, wireError } from '../../src/call/run/wire-error.ts';

const ADVISED = {
  'bad-token': 'bad-token',
  format: 'bad-token',
  'bad-answer': 'bad-answer',
  store: 'store',
  fenced: 'busy',
  busy: 'busy',
  divergence: 'divergence',
  'question-drift': 'divergence',
  'replay-refused': 'replay-refused',
  expired: 'expired',
  'host-gone': 'host-gone',
  closed: 'closed',
  limit: 'limit',
  'no-room': 'no-room',
} as const satisfies Partial<Record<AwaitErrorCode, string>>;

describe.each(Object.entries(ADVISED) as [AwaitErrorCode, string][])('%s', (code, reason) => {
  it('advises to send the same request again where its sentence does', () => {
    const { message, data } = wireError(new AwaitError(code, 'for the log'));
    // SDK v2's own reason stands beside ours.
    const sdk = reason === 'bad-token' ? { reason: 'invalid_request_state' } : {};
    const advice = { reason, retry: message.includes('send the same request again') };
    expect(data).toEqual({ ...sdk, 'mcp-await': advice });
  });

  it('never advises it once a step is done that the error names', () => {
    const error = Object.assign(new AwaitError(code, 'for the log'), { steps: ['charge'] });
    const { message, data } = wireError(error);
    if (message.includes('charge')) expect(data).toEqual({ 'mcp-await': { reason, retry: false } });
    else expect(data).toEqual(wireError(new AwaitError(code, 'for the log')).data);
  });
});

it('a bad token has one error, whatever is wrong with it', () => {
  const [one, other] = [new AwaitError('bad-token', 'expired'), new AwaitError('format', 'of version 9')];
  expect(JSON.stringify(wireError(one))).toBe(JSON.stringify(wireError(other)));
});

it('an unexpected failure says neither why nor what to do', () => {
  expect(wireError(AwaitError.from(new Error('secret')))).toEqual(INTERNAL);
  expect(INTERNAL).toEqual({ code: -32603, message: 'Internal error' });
});
