/** Raw requests to servers on their own SDK's transports and hosted: the same replies, or a line in `docs/differences.md`. */
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { WebStandardStreamableHTTPServerTransport as TransportV1 } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { WebStandardStreamableHTTPServerTransport as TransportV2 } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type AwaitHandler,
  type AwaitOptions,
  createAwaitHandler,
  type HostFactory,
} from '../../src/index.ts';
import { LogBook } from '../e2e/harness.ts';
import { type Differs, expectSame, LISTED } from './compare.ts';
import { mirrorV1 } from './mirror-v1.ts';
import { mirrorV2 } from './mirror-v2.ts';
import { nativeModern } from './native.ts';
import { alone, FIRST, inSession, MODERN, modern, type RawRequest, SESSION } from './raw.ts';
import type { Fetch } from './talk.ts';

const NO_MESSAGE: Differs = { 'body.*.error.code': 'no-message', 'body.*.error.message': 'no-message' };
const WITH_ID: Differs = { 'body.*.id': 'error-id' };
/** A result natively, an error hosted, or the other way round. */
const EITHER = (name: string, more: Differs = {}): Differs => ({
  status: name,
  type: name,
  'body.*.result': name,
  'body.*.error': name,
  'body.*.id': name,
  ...more,
});
const SERVED = EITHER('accept', { session: 'accept' });
const NO_BATCH: Differs = { status: 'batch', type: 'batch', session: 'batch', body: 'batch' };
const STRAY: Differs = { status: 'stray-answer', type: 'stray-answer', body: 'stray-answer' };
const JSON_ONCE: Differs = { type: 'initialize-json' };
const NO_PARAMS: Differs = {
  'body.*.id': 'error-id',
  'body.*.error.code': 'initialize-params',
  'body.*.error.message': 'initialize-params',
};

/** The differences of both SDKs in a session, by the names of the requests. */
const IN_SESSION: Readonly<Record<string, Differs>> = {
  'an id: 1.5': { ...NO_MESSAGE, ...WITH_ID },
  'an id: 1e+21': { ...NO_MESSAGE, ...WITH_ID },
  'an id: null': NO_MESSAGE,
  'an id: true': NO_MESSAGE,
  'an id: {}': NO_MESSAGE,
  'an id: []': NO_MESSAGE,
  'Accept: null': WITH_ID,
  'Accept: */*': SERVED,
  'Accept: application/*': WITH_ID,
  'Accept: application/json': WITH_ID,
  'Accept: text/event-stream': WITH_ID,
  'Accept: APPLICATION/JSON, Text/Event-Stream': SERVED,
  'Accept: text/html': WITH_ID,
  'bad JSON': { 'body.*.error.message': 'no-message' },
  'an empty body': { 'body.*.error.message': 'no-message' },
  'a string': NO_MESSAGE,
  'a number': NO_MESSAGE,
  null: NO_MESSAGE,
  'an empty object': NO_MESSAGE,
  'an empty batch': { status: 'batch', type: 'batch', body: 'batch' },
  'another jsonrpc': { ...NO_MESSAGE, ...WITH_ID },
  'no jsonrpc': { ...NO_MESSAGE, ...WITH_ID },
  'no method': NO_MESSAGE,
  'a method that is a number': NO_MESSAGE,
  'a member that nobody knows': { ...NO_MESSAGE, ...WITH_ID },
  'params that are an array': { ...NO_MESSAGE, ...WITH_ID },
  'params that are null': { ...NO_MESSAGE, ...WITH_ID },
  'a response to nothing': STRAY,
  'an error to nothing': STRAY,
  'a response with result and error': NO_MESSAGE,
  'a batch of two': NO_BATCH,
  'a batch of a request and a notification': EITHER('batch', { session: 'batch' }),
  'a foreign Origin': EITHER('foreign-page', { session: 'foreign-page' }),
  'MCP-Protocol-Version: 1999-01-01': { ...WITH_ID, 'body.*.error.message': 'versions' },
  'GET after an unknown event': {
    status: 'last-event-id',
    type: 'last-event-id',
    session: 'last-event-id',
    body: 'last-event-id',
  },
  'initialize again': WITH_ID,
  'an unknown session': WITH_ID,
  'no session': WITH_ID,
  initialize: JSON_ONCE,
  'initialize, of 2025-03-26': JSON_ONCE,
  'initialize, of 2024-11-05': JSON_ONCE,
  'initialize, of 1999-01-01': JSON_ONCE,
  'initialize with an id that is a string': JSON_ONCE,
  'initialize without params': NO_PARAMS,
  'initialize without clientInfo': NO_PARAMS,
  'initialize with capabilities that are a string': NO_PARAMS,
  'initialize in a batch of its own': {
    status: 'batch',
    type: 'batch',
    session: 'batch',
    'body.*.result': 'batch',
    'body.*.error': 'batch',
  },
  'initialize in a batch': { ...WITH_ID, 'body.*.error.message': 'batch' },
  'initialize that accepts JSON alone': WITH_ID,
};

const { type: _json, ...FOREIGN_MODERN } = EITHER('foreign-page');

/** Those of SDK v2's own handler for 2026-07-28. */
const IN_MODERN: Readonly<Record<string, Differs>> = {
  'tools/call with arguments that are a string': { 'body.*.error.message': 'arguments' },
  'a foreign Origin': FOREIGN_MODERN,
  'a requestState of nobody': { 'body.*.result': 'request-state', 'body.*.error': 'request-state' },
};

let handlers: AwaitHandler[] = [];
afterEach(async () => {
  await Promise.all(handlers.map((handler) => handler.close()));
  handlers = [];
});

function hosted(factory: HostFactory, options: AwaitOptions = {}): Fetch {
  const handler = createAwaitHandler(factory, { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request);
}

interface Transport {
  handleRequest(request: Request): Promise<Response>;
}

/** A server with one session. */
function native(open: () => Promise<Transport>): Fetch {
  let transport: Promise<Transport> | undefined;
  return async (request) => {
    transport ??= open();
    return (await transport).handleRequest(request);
  };
}

const SDKS = [
  {
    sdk: 'v1',
    factory: mirrorV1,
    open: async (): Promise<Transport> => {
      const transport = new TransportV1({ sessionIdGenerator: randomUUID });
      await mirrorV1({}).connect(transport);
      return transport;
    },
  },
  {
    sdk: 'v2',
    factory: mirrorV2,
    open: async (): Promise<Transport> => {
      const transport = new TransportV2({ sessionIdGenerator: randomUUID });
      await mirrorV2({}).connect(transport);
      return transport;
    },
  },
];

describe.each(SDKS)('a server of SDK $sdk and a client of 2025-11-25', ({ factory, open }) => {
  it.each(SESSION)('in a session: $name', async (request) => {
    const seen = await inSession(hosted(factory), request);
    expectSame(await inSession(native(open), request), seen, IN_SESSION[request.name]);
  });

  it.each(FIRST)('at first: $name', async (request) => {
    expectSame(
      await alone(native(open), request),
      await alone(hosted(factory), request),
      IN_SESSION[request.name],
    );
  });
});

describe('a server of SDK v2 and a client of 2026-07-28', () => {
  it.each(MODERN)('$name', async (request) => {
    const one = await modern(
      nativeModern((view) => mirrorV2(view)),
      request,
    );
    const other = await modern(hosted(mirrorV2, { revisions: ['2026-07-28'] }), request);
    expectSame(one, other, IN_MODERN[request.name]);
  });
});

it('no line of docs/differences.md is without a comparison', () => {
  const here = new URL('.', import.meta.url);
  const tests = readdirSync(here).map((name) => readFileSync(new URL(name, here), 'utf8'));
  expect([...LISTED].filter((name) => !tests.some((text) => text.includes(`'${name}'`)))).toEqual([]);
});

it('no request is listed that there is not', () => {
  const names = (requests: readonly RawRequest[]): Set<string> => new Set(requests.map(({ name }) => name));
  expect(Object.keys(IN_SESSION).filter((name) => !names([...SESSION, ...FIRST]).has(name))).toEqual([]);
  expect(Object.keys(IN_MODERN).filter((name) => !names(MODERN).has(name))).toEqual([]);
});
