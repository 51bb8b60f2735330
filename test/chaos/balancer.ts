/**
 * Sends each request to a process picked at random. One that cannot be reached is tried elsewhere, as is a
 * request that got no reply and may be sent twice: a GET, and the answer to an ask, whose first counts.
 */
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { listen, shut } from '../e2e/harness.ts';
import type { Random } from '../fixtures/random.ts';
import type { Fleet } from './fleet.ts';

/** How long all processes may be down before a request is given up, in milliseconds. */
const PATIENCE = 20_000;

export interface ChaosBalancer {
  readonly url: string;
  /** Requests that were sent to another process. */
  readonly retries: () => number;
  close(): Promise<void>;
}

export async function balanceFleet(
  fleet: Pick<Fleet, 'url' | 'size'>,
  random: Random,
): Promise<ChaosBalancer> {
  let retries = 0;
  const server = createServer(async (req, res) => {
    const body = await textOf(req);
    const mayRepeat = req.method === 'GET' || isAnswer(body);
    const until = performance.now() + PATIENCE;
    let isGone = false;
    res.once('close', () => {
      isGone = true;
    });
    while (!isGone && performance.now() < until) {
      const url = new URL(req.url ?? '', fleet.url(random.int(fleet.size)));
      const outcome = await forward(url, req, body, (reply) => {
        res.writeHead(reply.statusCode ?? 502, reply.headers);
        res.flushHeaders();
        reply.on('error', () => res.destroy());
        reply.on('aborted', () => res.destroy());
        res.once('close', () => reply.destroy());
        reply.pipe(res);
      });
      if (outcome === 'replied') return;
      if (outcome === 'broken' && !mayRepeat) break;
      retries += 1;
      await sleep(20);
    }
    res.destroy();
  });
  return { url: `${await listen(server)}/mcp`, retries: () => retries, close: () => shut(server) };
}

function forward(
  url: URL,
  { method, headers }: IncomingMessage,
  body: string,
  onReply: (reply: IncomingMessage) => void,
): Promise<'replied' | 'refused' | 'broken'> {
  return new Promise((resolve) => {
    const onward = httpRequest(url, { method, headers: { ...headers, host: 'localhost' }, agent: false });
    onward.once('response', (reply) => {
      resolve('replied');
      onReply(reply);
    });
    onward.on('error', (error: NodeJS.ErrnoException) =>
      resolve(error.code === 'ECONNREFUSED' ? 'refused' : 'broken'),
    );
    onward.end(body);
  });
}

function isAnswer(body: string): boolean {
  if (body === '') return false;
  const { method } = JSON.parse(body) as { method?: string };
  return method === undefined || method === 'initialize';
}

async function textOf(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
