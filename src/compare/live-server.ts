/**
 * Serves the page of `mcp-await compare --ui`, and the requests of its buttons. It listens on loopback, and refuses
 * pages of other origins and foreign host names, since its requests can call the server's tools.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { isObject, objectOf, reasonOf } from '../base/values.ts';
import { refuseForeign } from '../doors/http/origin.ts';
import type { Live } from './live.ts';
import { pageOf } from './page.ts';
import { listen, shut } from './site.ts';

export interface LiveServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Bytes of one request. */
const MOST = 1_048_576;

/** @param port 0 takes a free one */
export async function serveLive(live: Live, port: number): Promise<LiveServer> {
  const watchers = new Set<ServerResponse>();
  let isTelling = false;
  live.onChange = () => {
    if (isTelling) return;
    isTelling = true;
    // Many messages go by at once.
    setTimeout(() => {
      isTelling = false;
      for (const watcher of watchers) tell(watcher);
    }, 30);
  };
  const tell = (res: ServerResponse): void => void res.write(`data: ${JSON.stringify(live.state)}\n\n`);
  let url = '';
  const server = createServer(async (req, res) => {
    const header = (name: string): string | undefined => {
      const value = req.headers[name];
      return typeof value === 'string' ? value : undefined;
    };
    const refusal = refuseForeign({ header, onLoopback: true }, { origins: [], hosts: undefined });
    if (refusal !== undefined) return reply(res, refusal.reply.status, 'Refused');
    if (req.method === 'GET' && req.url === '/') {
      res.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' });
      return void res.end(pageOf(live.state));
    }
    if (req.method === 'GET' && req.url === '/state') {
      res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      watchers.add(res);
      res.once('close', () => watchers.delete(res));
      return tell(res);
    }
    if (req.method !== 'POST') return reply(res, 404, 'Not found');
    // Another page of this machine is another origin.
    // This page, by either name of this machine.
    const isOwn = [url, url.replace('127.0.0.1', 'localhost')].includes(header('origin') ?? '');
    if (!isOwn || header('content-type') !== 'application/json') return reply(res, 403, 'Refused');
    try {
      reply(res, (await act(live, req.url ?? '', await bodyOf(req))) ? 204 : 404, '');
    } catch (error) {
      reply(res, 400, reasonOf(error));
    }
  });
  url = await listen(server, port);
  return { url, close: () => shut(server) };
}

async function act(live: Live, path: string, body: unknown): Promise<boolean> {
  const { revision, tool, args, id, answer, process } = objectOf(body);
  switch (path) {
    case '/run': {
      const known = live.state.revisions.find((one) => one === revision);
      if (known === undefined) throw new RangeError(`there is no revision ${String(revision)}`);
      const call = typeof tool === 'string' ? { name: tool, args: objectOf(args) } : undefined;
      await live.run(known, call);
      return true;
    }
    case '/answer':
      return isObject(answer) && live.answer(Number(id), answer);
    case '/kill':
      await live.kill(String(process));
      return true;
    case '/start':
      await live.restart(String(process));
      return true;
    default:
      return false;
  }
}

async function bodyOf(req: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of req) {
    bytes += (chunk as Buffer).length;
    if (bytes > MOST) throw new RangeError(`the request is longer than ${MOST} bytes`);
    chunks.push(chunk as Buffer);
  }
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

function reply(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(text);
}
