import { createServer, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import '../../src/record/index.ts';
import {
  answers,
  BINDING,
  errorOf,
  MemoryStore,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  workbench,
} from '../call/bench.ts';
import { listen, shut } from '../e2e/harness.ts';

const LONG = 'x'.repeat(300_000);

const PAGES: Record<string, (res: ServerResponse) => void> = {
  '/json': (res) =>
    res
      .writeHead(201, 'Made', [
        ['content-type', 'application/json'],
        ['set-cookie', 'a=1'],
        ['set-cookie', 'b=2'],
      ])
      .end(`{"served":${requests.length}}`),
  '/bytes': (res) => res.end(Buffer.from([0, 255, 254, requests.length])),
  '/nothing': (res) => res.writeHead(204).end(),
  '/moved': (res) => res.writeHead(302, { location: '/json' }).end(),
  '/long': (res) => res.end(LONG),
  '/chunks': (res) => {
    res.write(LONG.slice(0, 150_000));
    res.end(LONG.slice(150_000));
  },
  '/events': (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.write(`data: ${requests.length}\n\n`);
  },
  '/never': () => {},
};

const requests: string[] = [];
const server = createServer((req, res) => {
  requests.push(`${req.method} ${req.url}`);
  PAGES[req.url ?? '']?.(res);
});
let base = '';

beforeAll(async () => {
  base = await listen(server);
});
afterAll(() => shut(server));
beforeEach(() => {
  requests.length = 0;
});

/**
 * The outcome of `read` before an ask in one process, and in another that replays it; and the requests that were sent.
 */
async function twice(read: () => Promise<unknown>) {
  const seen: unknown[] = [];
  const store = new MemoryStore();
  const tool: Tool = async ({ elicit }) => {
    seen.push(await read());
    await elicit('?');
    return 'done';
  };
  const first = suspended(await start(workbench(tool, { store }).engine));
  const other = workbench(tool, { store });
  const outcome = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
  expect(resultOf(outcome)).toBe('done');
  return { seen, store };
}

describe('a fetch inside of a call', () => {
  it('is sent once, and is the same response live and replayed', async () => {
    const { seen } = await twice(async () => {
      const response = await fetch(`${base}/json`, { method: 'POST', body: '{}' });
      expect(response).toBeInstanceOf(Response);
      const { status, statusText, ok, url, redirected, type, headers } = response;
      const kept = [status, statusText, ok, url, redirected, type, headers.getSetCookie()];
      return [...kept, headers.get('content-type'), await response.clone().text(), await response.json()];
    });
    expect(requests).toEqual(['POST /json']);
    expect(seen[0]).toEqual([
      201,
      'Made',
      true,
      `${base}/json`,
      false,
      'basic',
      ['a=1', 'b=2'],
      'application/json',
      '{"served":1}',
      { served: 1 },
    ]);
    expect(seen[1]).toEqual(seen[0]);
  });

  it('keeps bytes that are no text, empty bodies and where it was led', async () => {
    const { seen } = await twice(async () => [
      [...new Uint8Array(await (await fetch(`${base}/bytes`)).arrayBuffer())],
      (await fetch(new URL(`${base}/nothing`))).body,
      (await fetch(new Request(`${base}/moved`))).url,
    ]);
    expect(requests).toEqual(['GET /bytes', 'GET /nothing', 'GET /moved', 'GET /json']);
    expect(seen[0]).toEqual([[0, 255, 254, 1], null, `${base}/json`]);
    expect(seen[1]).toEqual(seen[0]);
  });

  it('fails the same way again: as the class that fetch throws, with its cause', async () => {
    const gone = createServer();
    const nobody = await listen(gone);
    await shut(gone);
    const { seen } = await twice(() =>
      fetch(nobody).catch((error: Error & { cause?: { code?: string } }) => {
        expect(error).toBeInstanceOf(TypeError);
        return [error.name, error.message, error.cause?.code];
      }),
    );
    expect(seen[0]).toEqual(['TypeError', 'fetch failed', 'ECONNREFUSED']);
    expect(seen[1]).toEqual(seen[0]);
  });

  it('that was given up is given up again', async () => {
    const { seen } = await twice(() =>
      fetch(`${base}/never`, { signal: AbortSignal.timeout(500) }).catch((error: Error) => {
        expect(error).toBeInstanceOf(DOMException);
        return error.name;
      }),
    );
    expect(seen).toEqual(['TimeoutError', 'TimeoutError']);
    expect(requests).toEqual(['GET /never']);
  });

  it.each(['/long', '/chunks'])('of a long body (%s) is whole, not kept, and read again', async (path) => {
    const { seen, store } = await twice(async () => (await (await fetch(base + path)).text()) === LONG);
    expect(seen).toEqual([true, true]);
    expect(requests).toEqual([`GET ${path}`, `GET ${path}`]);
    expect([...store.entries.values()].join().length).toBeLessThan(10_000);
  });

  it('of a stream is handed on as it comes', async () => {
    const { seen } = await twice(async () => {
      const reader = (await fetch(`${base}/events`)).body?.getReader();
      const { value } = (await reader?.read()) ?? {};
      await reader?.cancel();
      return new TextDecoder().decode(value);
    });
    expect(seen).toEqual(['data: 1\n\n', 'data: 2\n\n']);
  });

  it('that may act is not sent twice, even where its response was not kept', async () => {
    const store = new MemoryStore();
    const tool: Tool = async ({ elicit }) => {
      await fetch(`${base}/long`, { method: 'POST' });
      await elicit('?');
    };
    const first = suspended(await start(workbench(tool, { store }).engine));
    const other = workbench(tool, { store });
    const outcome = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(errorOf(outcome).message).toContain('Put it into a step');
    expect(requests).toEqual(['POST /long']);
  });

  it('of a changed tool is no divergence: what is new is sent, what is gone is passed over', async () => {
    const store = new MemoryStore();
    const toolOf =
      (path: string): Tool =>
      async ({ elicit, step }) => {
        await step('before', () => 1);
        const { status } = await fetch(base + path);
        await step('after', () => 1);
        await elicit('?');
        await step('afterwards', () => 1);
        return status;
      };
    const first = suspended(await start(workbench(toolOf('/nothing'), { store }).engine));
    const other = workbench(toolOf('/json'), { store });
    const outcome = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(resultOf(outcome)).toBe(201);
    expect(requests).toEqual(['GET /nothing', 'GET /json']);
  });

  it('without an await is sent, and resolves, though the tool is done', async () => {
    let told: (status: number) => void = () => {};
    const status = new Promise<number>((resolve) => {
      told = resolve;
    });
    const { engine } = workbench(async () => {
      void fetch(`${base}/json`).then((response) => told(response.status));
      return 'done';
    });
    expect(resultOf(await start(engine))).toBe('done');
    expect(await status).toBe(201);
  });

  it('inside of a step, or outside of calls, is not recorded', async () => {
    const { store } = await twice(() => fetch(`${base}/json`).then(({ status }) => status));
    expect([...store.entries.values()].join()).toContain('"/fetch GET 127.0.0.1');
    const plain = new MemoryStore();
    const tool: Tool = async ({ step, elicit }) => {
      await step('get', async () => (await fetch(`${base}/json`)).status);
      await elicit('?');
    };
    suspended(await start(workbench(tool, { store: plain }).engine));
    expect([...plain.entries.values()].join()).not.toContain('fetch');
    expect((await fetch(`${base}/json`)).status).toBe(201);
  });
});
