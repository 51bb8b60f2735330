/**
 * Clients with stubborn retries: a request that got no reply, or one that says so, is sent again as it was. They
 * are impatient too, and send a second one beside the first, to whichever process: so a turn has rivals.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../fixtures/random.ts';
import { clock } from './events.ts';
import type { Fleet } from './fleet.ts';
import type { DoneStep } from './verdict.ts';

/** A request is given up, and its call lost, after this long without a reply, in milliseconds. */
const STUBBORN_FOR = 90_000;
/** After about this long without a reply the same request is sent beside, in milliseconds. */
const IMPATIENT = [200, 900] as const;
/** A checkpoint is larger than a page of SQLite, so that a full disk has no room for it. */
const PADDING = 'x'.repeat(4_500);
const STEPS = ['a0', 'b0', 'c0', 'a1', 'b1', 'c1', 'a2', 'b2', 'c2'];

interface Reply {
  readonly result?: {
    resultType: string;
    inputRequests?: object;
    requestState?: string;
    content?: { text: string }[];
  };
  readonly error?: { code: number; message: string };
}

export interface Tally {
  completed: number;
  /** First requests without a reply that holds a token: calls that never began. */
  neverBegan: number;
  retries: number;
  readonly lost: string[];
  readonly done: DoneStep[];
}

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'chaos', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
};
const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': '2026-07-28',
  'mcp-method': 'tools/call',
  'mcp-name': 'work',
};
let nextId = 1;

/** Undefined when no reply came; a reply that says to come again counts as none. */
async function post(url: string, params: object): Promise<Reply | undefined> {
  const call = { name: 'work', arguments: { padding: PADDING }, ...params, _meta: META };
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: HEADERS,
      body: JSON.stringify({ jsonrpc: '2.0', id: nextId++, method: 'tools/call', params: call }),
      signal: AbortSignal.timeout(12_000),
    });
    const reply = (await response.json()) as Reply;
    return reply.error?.message.includes('send the same request again') ? undefined : reply;
  } catch {
    return undefined;
  }
}

/** Undefined when none of them is a reply. */
function firstReply(requests: readonly Promise<Reply | undefined>[]): Promise<Reply | undefined> {
  const replies = requests.map(async (request) => (await request) ?? Promise.reject(new Error('no reply')));
  return Promise.any(replies).catch(() => undefined);
}

export async function client(
  fleet: Fleet,
  random: Random,
  tally: Tally,
  isOver: () => boolean,
): Promise<void> {
  const somewhere = (params: object): Promise<Reply | undefined> =>
    post(fleet.url(random.int(fleet.size)), params);
  const stubborn = async (params: object): Promise<Reply> => {
    const started = clock();
    while (clock() - started < STUBBORN_FOR) {
      const first = somewhere(params);
      const early = await Promise.race([first, sleep(random.between(...IMPATIENT), 'impatient' as const)]);
      const reply = early === 'impatient' ? await firstReply([first, somewhere(params)]) : early;
      if (reply !== undefined) return reply;
      tally.retries += 1;
      await sleep(100);
    }
    return { error: { code: 0, message: `no reply in ${STUBBORN_FOR} ms` } };
  };
  while (!isOver()) {
    let reply = await somewhere({});
    if (reply === undefined) {
      tally.neverBegan += 1;
      await sleep(50);
      continue;
    }
    while (reply.result?.resultType === 'input_required') {
      const { inputRequests = {}, requestState } = reply.result;
      const entries = Object.keys(inputRequests).map((key) => [
        key,
        { action: 'accept', content: { go: true } },
      ]);
      reply = await stubborn({ requestState, inputResponses: Object.fromEntries(entries) });
    }
    const done = stepsIn(reply);
    if (done === undefined) {
      tally.lost.push(JSON.stringify(reply));
    } else {
      tally.completed += 1;
      tally.done.push(...done);
    }
  }
}

/** The steps of a call that came to its end; undefined where it came to something else. */
export function stepsIn(reply: Reply): DoneStep[] | undefined {
  try {
    const done = JSON.parse(reply.result?.content?.[0]?.text ?? '') as DoneStep[];
    return done.map(({ step }) => step).join() === STEPS.join() ? done : undefined;
  } catch {
    return undefined;
  }
}
