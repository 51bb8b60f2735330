/**
 * The balancers of the rolling run, in front of a fixed list of ports. None of them repeats a request that a process
 * may have begun to serve.
 */
import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** How often `ready` asks, in milliseconds: the run's `linger` is longer. */
const ASKS_EVERY = 200;
/** How long a balancer looks for a process that accepts a request, in milliseconds. */
const PATIENCE = 5_000;

export interface Balancer {
  readonly url: string;
  close(): void;
}

/**
 * - `tcp`: passes connections on, round robin; one that is refused is tried at the next process.
 * - `http`: passes requests on, round robin, over connections that it keeps; a refused connection is tried elsewhere.
 * - `http-503`: the same, and a request that gets 503 is sent again.
 * - `ready`: as `tcp` to those processes whose `/readyz` says yes; a refused connection is the client's error.
 */
export const BALANCERS = ['tcp', 'http', 'http-503', 'ready'] as const;
export type BalancerName = (typeof BALANCERS)[number];

export function openBalancer(name: BalancerName, ports: readonly number[]): Promise<Balancer> {
  switch (name) {
    case 'tcp':
      return overTcp(roundRobin(ports), true);
    case 'ready':
      return overTcp(whileReady(ports), false);
    case 'http':
      return overHttp(ports, false);
    case 'http-503':
      return overHttp(ports, true);
  }
}

interface Picks {
  next(): number;
  stop?(): void;
}

function roundRobin(ports: readonly number[]): Picks {
  let nth = 0;
  return { next: () => ports[nth++ % ports.length] ?? 0 };
}

function whileReady(ports: readonly number[]): Picks {
  const ready = new Set(ports);
  let isOver = false;
  let nth = 0;
  const watch = async (port: number): Promise<void> => {
    while (!isOver) {
      const isReady = await fetch(`http://127.0.0.1:${port}/readyz`, {
        headers: { connection: 'close' },
      }).then(
        ({ ok }) => ok,
        () => false,
      );
      if (isReady) ready.add(port);
      else ready.delete(port);
      await sleep(ASKS_EVERY);
    }
  };
  for (const port of ports) void watch(port);
  return {
    next: () => {
      const now = ports.filter((port) => ready.has(port));
      return now[nth++ % now.length] ?? 0;
    },
    stop: () => {
      isOver = true;
    },
  };
}

async function overTcp(picks: Picks, triesAnother: boolean): Promise<Balancer> {
  const sockets = new Set<Socket>();
  const server = createTcpServer({ allowHalfOpen: true }, (client) => {
    sockets.add(client);
    client.once('close', () => sockets.delete(client));
    client.on('error', () => {});
    const until = performance.now() + PATIENCE;
    const attempt = (): void => {
      const onward = connect({ port: picks.next(), host: '127.0.0.1', allowHalfOpen: true });
      onward.once('connect', () => {
        onward.on('error', () => client.destroy());
        client.on('error', () => onward.destroy());
        client.once('close', () => onward.destroy());
        onward.once('close', () => client.destroy());
        client.pipe(onward).pipe(client);
      });
      onward.once('error', () => {
        if (triesAnother && !client.destroyed && performance.now() < until) setTimeout(attempt, 5);
        else client.destroy();
      });
    };
    attempt();
  });
  await up(server);
  return {
    url: urlOf(server),
    close: () => {
      picks.stop?.();
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

async function overHttp(ports: readonly number[], repeats503: boolean): Promise<Balancer> {
  const picks = roundRobin(ports);
  const agent = new Agent({ keepAlive: true, timeout: 60_000 });
  const server = createServer(async (req, res) => {
    const body = await bodyOf(req).catch(() => undefined);
    if (body === undefined) return;
    const until = performance.now() + PATIENCE;
    for (;;) {
      const isLast = performance.now() > until;
      const outcome = await forward(agent, picks.next(), req, res, body, repeats503 && !isLast);
      if (outcome === 'done') return;
      if (isLast || outcome !== 'again') {
        if (res.headersSent) res.destroy();
        else res.writeHead(502).end(`no process served it: ${outcome}`);
        return;
      }
      await sleep(5);
    }
  });
  await up(server);
  return {
    url: urlOf(server),
    close: () => {
      server.close();
      server.closeAllConnections();
      agent.destroy();
    },
  };
}

/** `again`: it certainly was not served. Else what broke, and how old the connection was. */
function forward(
  agent: Agent,
  port: number,
  { method, url, headers: received }: IncomingMessage,
  res: ServerResponse,
  body: Buffer,
  repeats503: boolean,
): Promise<string> {
  const { connection: _, ...headers } = received;
  const began = performance.now();
  return new Promise((resolve) => {
    const onward = httpRequest(
      { port, host: '127.0.0.1', method, path: url, headers: { ...headers, host: 'localhost' }, agent },
      (reply) => {
        if (repeats503 && reply.statusCode === 503) {
          reply.resume();
          resolve('again');
          return;
        }
        const { connection: __, 'keep-alive': ___, ...own } = reply.headers;
        res.writeHead(reply.statusCode ?? 502, own);
        res.flushHeaders();
        reply.on('error', () => res.destroy());
        reply.pipe(res);
        resolve('done');
      },
    );
    onward.on('error', (error: NodeJS.ErrnoException) =>
      resolve(
        error.code === 'ECONNREFUSED'
          ? 'again'
          : `${error.code} after ${Math.round(performance.now() - began)} ms on ${onward.reusedSocket ? 'a kept' : 'a new'} connection to ${port}`,
      ),
    );
    res.once('close', () => onward.destroy());
    onward.end(body);
  });
}

async function bodyOf(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

async function up(server: Server): Promise<void> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}
