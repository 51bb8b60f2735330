/** Random messages of one client on a pipe (stdio or a WebSocket), as text: in the right order for the most part. */
import { NAMES } from '../../compat/revisions.ts';
import { EVENT_META, RESUME, SESSION_META, VERSION_META } from '../../src/base/resume-meta.ts';
import type { Random } from '../fixtures/random.ts';
import { bodyOf, type Known, ODD } from './requests.ts';

const SPOKEN = NAMES.filter((name) => name !== 'workspace-sse' && name !== '2024-11-05');
/** Messages at once, where a client sends very many. */
const FLOOD = 3_000;
const HUGE = 300_000;

/** What a client sends, first to last. */
export function messagesOf(random: Random, known: Known): string[] {
  const revision = random.pick(SPOKEN);
  const count = random.int(300) === 0 ? 1 + random.int(FLOOD) : 1 + random.int(25);
  const one = count > 100 ? oneText(random, known, revision) : undefined;
  const texts = Array.from({ length: count }, () => one ?? oneText(random, known, revision));
  if (random.int(10) < 8) texts.unshift(...beginning(random, known, revision));
  return random.int(10) === 0 ? random.shuffled(texts) : texts;
}

function beginning(random: Random, known: Known, revision: string): string[] {
  if (revision === '2026-07-28') return [];
  if (random.int(5) === 0) return [resume(random, known)];
  const params = {
    protocolVersion: revision,
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    clientInfo: { name: 'fuzz', version: '1' },
    ...(random.int(2) === 0 && { _meta: { [SESSION_META]: random.int(5) === 0 ? random.pick(ODD) : true } }),
  };
  const begin = { jsonrpc: '2.0', id: 'begin', method: 'initialize', params };
  return [JSON.stringify(begin), JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })];
}

/** A client that comes back, with a session and events of its own, of others, or of nobody. */
function resume(random: Random, known: Known): string {
  const odd = (value: string): unknown => (random.int(8) === 0 ? random.pick(ODD) : value);
  const _meta = {
    [SESSION_META]: odd(known.pick('pipe', random)),
    [VERSION_META]: odd(random.pick(NAMES)),
    ...(random.int(2) === 0 && { [EVENT_META]: odd(known.pick('event', random)) }),
  };
  return JSON.stringify({ jsonrpc: '2.0', method: RESUME, params: random.int(20) === 0 ? [] : { _meta } });
}

function oneText(random: Random, known: Known, revision: string): string {
  const kind = random.int(60);
  if (kind === 0) return resume(random, known);
  if (kind === 1) return `"${'a'.repeat(random.int(HUGE))}"`;
  if (kind === 2)
    return JSON.stringify({ jsonrpc: '2.0', id: random.pick(ODD), method: 'x'.repeat(random.int(HUGE)) });
  const text = bodyOf(random, known, revision);
  return kind < 10 ? again(text, random, known) : text;
}

/** A request that is sent again after a break. */
function again(text: string, random: Random, known: Known): string {
  try {
    const message = JSON.parse(text) as { params?: Record<string, unknown> };
    const meta = message.params?._meta;
    if (typeof message.params !== 'object' || message.params === null) return text;
    const event = random.int(8) === 0 ? random.pick(ODD) : known.pick('event', random);
    const _meta = { ...(typeof meta === 'object' && meta), [EVENT_META]: event };
    return JSON.stringify({ ...message, params: { ...message.params, _meta } });
  } catch {
    return text;
  }
}

const LEARNT: readonly (readonly [string, RegExp])[] = [
  ['event', new RegExp(`"${EVENT_META}":"([^"]{1,300})"`, 'g')],
  ['pipe', new RegExp(`"${SESSION_META}":"([^"]{1,6000})"`, 'g')],
  ['ask', /"id":"([^"]{1,200}\/[^"]{1,100})"/g],
  ['state', /"(?:requestState|request_state)":"([^"]{1,6000})"/g],
  ['key', /"(?:inputRequests|input_requests)":\{"([^"]{1,100})"/g],
  ['task', /"taskId":"([^"]{1,200})"/g],
];

/** What a message of the server tells, for later messages of any client. */
export function learn(known: Known, text: string): void {
  for (const [kind, pattern] of LEARNT) {
    for (const [, value] of text.matchAll(pattern)) if (value !== undefined) known.learn(kind, value);
  }
}

/** An SDK's own errors, with the code of an internal one: for params of another shape, and for a task it does not take. */
const BY_SDK = /^(?:\[\n {2}\{\n|Server does not support task creation)/;

/** Problems of what a server sent: it is JSON-RPC, and no request, however bad, is an internal error. */
export function problemIn(text: string): string | undefined {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch {
    return `no JSON: ${text.slice(0, 500)}`;
  }
  const { error } = (message ?? {}) as { error?: { code?: unknown; message?: unknown } };
  const isInternal = error?.code === -32603 && !BY_SDK.test(String(error.message));
  return isInternal ? `an internal error: ${text.slice(0, 1_000)}` : undefined;
}
