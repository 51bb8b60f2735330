/** Serves a host for the command line, over HTTP, until a signal ends the process. */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { counted, defined, type JsonObject, optionError } from '../base/values.ts';
import { LIMITS } from '../call/limits.ts';
import { headOf, isLoopback, lastForwarded } from '../doors/http/address.ts';
import type { Reply } from '../doors/http/exchange.ts';
import { type OriginRules, preflight, refuseForeign, withCors } from '../doors/http/origin.ts';
import { Paths } from '../doors/http/paths.ts';
import { refusalOf } from '../doors/http/refused.ts';
import { closeOnSignals, onSignals } from '../doors/http/shutdown.ts';
import { createStdio } from '../doors/pipe/stdio.ts';
import { mountWebSocket } from '../doors/websocket/mount.ts';
import type { Health } from '../handler/await-handler.ts';
import { type AwaitOptions, createAwaitHandler } from '../handler/handler.ts';
import type { HostFactory } from '../host/host.ts';
import { type NodeRequest, toNodeHandler } from '../node.ts';
import type { Logger } from '../observe/logger.ts';
import { isPeerHost } from '../proxy/host.ts';
import { askingOf } from './ask.ts';
import type { Draft, Serving } from './flags.ts';
import type { Forwarding } from './forwarding.ts';
import { levelLogger } from './logger.ts';

/** How long the module's own handles may keep the process once everything is closed, in milliseconds. */
const LAST = 1_000;
/** Where Express and the SDKs' examples mount a server. */
const PATH = '/mcp';
/** How long the head of a request may take at most, in milliseconds. */
const HEAD_TIME = 10_000;

/**
 * @param log the level of the log, unless a flag sets it
 * @param load makes the host; called once the arguments are valid
 * @param forwarding where callers authenticate at the server behind the proxy
 */
export async function serveHost(
  draft: Draft,
  log: string,
  load: () => Promise<HostFactory>,
  forwarding?: Forwarding,
): Promise<void> {
  const { serving } = draft;
  const { port, host } = serving;
  const logger = draft.options.logger ?? levelLogger(log);
  const asking = askingOf(draft, logger);
  const options = { ...draft.options, ...asking?.options, logger };
  if (serving.stdio) {
    const { close, closed } = createStdio(await load(), options);
    onSignals(close);
    await closed;
    process.exit(0);
  }
  const loaded = await load();
  const isPeer = isPeerHost(loaded);
  const { factory, started } = isPeer ? { factory: loaded, started: () => {} } : watched(loaded, logger);
  const handler = createAwaitHandler(factory, options);
  // A server behind the proxy was started already, to see that it can be.
  if (!isPeer) await handler.check();
  started();
  const listener = toNodeHandler(handler, { compress: serving.compress });
  const paths = new Paths(options.paths);
  const authenticate = forwarding?.authenticate ?? asking?.authenticate;
  const admission: Admission = {
    authenticate,
    rules: { origins: options.allowedOrigins ?? [], hosts: options.allowedHosts },
    listener,
  };
  const requests = new Set<ServerResponse>();
  const server = httpServer(serving, (req, res) => {
    requests.add(res);
    res.once('close', () => requests.delete(res));
    if (req.method !== 'POST') req.resume();
    const [path = '/'] = (req.url ?? '/').split('?', 1);
    if (path === '/healthz') respond(res, { ready: true });
    else if (path === '/readyz') void handler.health().then((health) => respond(res, health));
    else if (asking?.pairing?.isFor(req)) void asking.pairing.exchange(req, res).catch(() => res.destroy());
    else if (asking?.has(path)) void listener(req, res);
    else if (forwarding?.has(path))
      void tell(req, res, admission.rules, () => forwarding.metadata(path, req));
    else if (path === PATH || paths.find(path)?.wire !== 'mcp') void admit(req, res, admission);
    else res.writeHead(404, { 'content-type': 'text/plain' }).end(`Not found: this server is at ${PATH}\n`);
  });
  const sockets = mountWebSocket(server, handler, {
    path: PATH,
    ...defined({ authenticate }),
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const taken = `--port ${port} is taken on ${host}; choose another one, or 0 for a free one`;
      const other = `cannot listen on ${host}:${port}: ${[error.code, error.message].join(' ')}`;
      reject(optionError(error.code === 'EADDRINUSE' ? taken : other, error));
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  warnIfOpen(host, options, forwarding !== undefined, authenticate === undefined);
  asking?.pairing?.start();
  const { close } = handler;
  /** Reports on stderr what a process that got a signal waits for. */
  const leave = async (linger?: number): Promise<void> => {
    const left = handler.leave(linger);
    // The second time it waits for what came in meanwhile.
    if (linger === undefined) return left;
    const connections = await new Promise<number>((resolve) =>
      server.getConnections((error, count) => resolve(error === null ? count : 0)),
    );
    const idle = Math.max(0, connections - requests.size);
    const drain = seconds(options.limits?.drain ?? LIMITS.drain);
    process.stderr.write(
      `mcp-await: closing: ${counted(requests.size, 'open request')} (${drain}), ${counted(idle, 'idle connection')} (${seconds(serving.idleTime + 1_000)}); a third Ctrl-C ends it at once\n`,
    );
    return left;
  };
  const release = async (): Promise<void> => {
    await handler.release();
    // What the module keeps open, such as a pool of its own, must not keep the process.
    setTimeout(() => process.exit(), LAST).unref();
  };
  closeOnSignals(server, { leave, close, release }, { linger: serving.linger, sockets });
  // Last: who reads this may send a signal at once.
  process.stdout.write(`listening on http://${host.includes(':') ? `[${host}]` : host}:${bound}${PATH}\n`);
}

function seconds(milliseconds: number): string {
  return `${Math.ceil(milliseconds / 1_000)} s`;
}

/** A factory that reports what it throws until it has `started`: `handler.check` ignores that. */
function watched(load: HostFactory, logger: Logger): { factory: HostFactory; started: () => void } {
  let isStarting = true;
  const report = (error: unknown): void => {
    if (!isStarting) return;
    isStarting = false;
    logger.error('the factory threw at start, without a client; unless it needs one, nobody can be served', {
      error: String(error),
    });
  };
  const factory: HostFactory = (context) => {
    const made = (async () => load(context))();
    made.catch(report);
    return made;
  };
  return {
    factory,
    started: () => {
      isStarting = false;
    },
  };
}

/** How MCP requests are admitted, and what serves them. */
interface Admission {
  /** @throws CredentialsRefused, or another error for credentials that are not valid or cannot be verified */
  readonly authenticate: ((req: NodeRequest) => Promise<JsonObject | undefined>) | undefined;
  readonly rules: OriginRules;
  readonly listener: (req: NodeRequest, res: ServerResponse) => Promise<void>;
}

/** Passes a request on, with the credentials that it came with. */
async function admit(
  req: NodeRequest,
  res: ServerResponse,
  { authenticate, rules, listener }: Admission,
): Promise<void> {
  const head = headOf(req);
  try {
    // The handler refuses a foreign page, and answers a preflight, whoever asks.
    const isAnswered = req.method === 'OPTIONS' || refuseForeign(head, rules) !== undefined;
    const auth = isAnswered || authenticate === undefined ? undefined : await unread(req, authenticate(req));
    if (auth !== undefined) req.auth = auth;
  } catch (error) {
    req.resume();
    reply(res, withCors(head, refusalOf(error)));
    return;
  }
  // Its client left meanwhile, and nothing would end the call.
  if (!res.destroyed) await listener(req, res);
}

/**
 * Reads no more of a request until it is known whose it is: Node would keep some two hundred bytes for each piece of its
 * body. Of those that came with its head it keeps a few, as strings.
 */
function unread<T>(req: NodeRequest, known: Promise<T>): Promise<T> {
  req.setEncoding('latin1').socket.pause();
  return known.finally(() => req.socket.resume());
}

/** Answers a request that is for no handler, by the rules for pages and hosts. */
async function tell(
  req: NodeRequest,
  res: ServerResponse,
  rules: OriginRules,
  answer: () => Promise<Reply>,
): Promise<void> {
  const head = headOf(req);
  const foreign = refuseForeign(head, rules)?.reply;
  const asked = req.method === 'OPTIONS' ? preflight(head, 'GET, OPTIONS') : undefined;
  reply(res, foreign ?? withCors(head, asked ?? (await answer())));
}

/** The body of the request may not have been read, so its connection ends. */
function reply(res: ServerResponse, { status, headers, body }: Reply): void {
  res.shouldKeepAlive = false;
  res.writeHead(status, headers).end(typeof body === 'string' ? body : undefined);
}

/** `/healthz`: the process runs. `/readyz`: requests may come here. */
function respond(res: ServerResponse, health: Health): void {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  res.writeHead(health.ready ? 200 : 503, headers).end(JSON.stringify(health));
}

/** Warns where other machines can connect: of callers without credentials, or of pages that name this server as they like (DNS rebinding). */
function warnIfOpen(
  host: string,
  { logger, allowedHosts }: AwaitOptions & { readonly logger: Logger },
  isForwarded: boolean,
  isAnonymous: boolean,
): void {
  if (isLoopback(host) || host === 'localhost') return;
  if (!isForwarded)
    logger.warn(
      `anyone at ${host} can use this server: ${isAnonymous ? 'it authenticates nobody' : 'callers without a token are served'}. Put a proxy that authenticates in front`,
    );
  else if (allowedHosts === undefined)
    logger.warn(
      '--forward-authorization serves any name; add --allow-host with the public name of the server',
    );
}

/** How often requests that take too long are looked for, in milliseconds: Node's default is 30 s. */
const CHECK = 1_000;

/** A server whose connections, heads and bodies are bounded in number and time. */
function httpServer(serving: Serving, listener: (req: NodeRequest, res: ServerResponse) => void): Server {
  const { connections, bodyTime, idleTime, forwarded } = serving;
  const times = {
    headersTimeout: Math.min(HEAD_TIME, bodyTime),
    requestTimeout: bodyTime,
    keepAliveTimeout: idleTime,
    connectionsCheckingInterval: CHECK,
  };
  const server = createServer(times, (req: NodeRequest, res) => {
    const address = forwarded ? lastForwarded(String(req.headers['x-forwarded-for'] ?? '')) : '';
    if (address !== '') req.ip = address;
    listener(req, res);
  });
  server.maxConnections = connections;
  return server;
}
