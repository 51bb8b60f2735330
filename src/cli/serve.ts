/** `mcp-await serve`: mounts a module's server on HTTP. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { createAwaitHandler } from '../../compat/handler.ts';
import { openStore } from '../checkpoint/open-store.ts';
import { AwaitError } from '../error.ts';
import { Paths } from '../http/paths.ts';
import { toNodeHandler } from '../node.ts';
import type { AwaitOptions } from '../options.ts';
import { openRelay } from '../relay/open-relay.ts';
import { loadFactory } from './load.ts';
import { levelLogger } from './logger.ts';

/** Where Express and the SDKs' examples mount a server. */
const PATH = '/mcp';
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', 'localhost', '::1']);

export async function serve(args: readonly string[]): Promise<void> {
  const { values, positionals } = readArguments(args);
  const [path] = positionals;
  if (path === undefined || positionals.length > 1) {
    throw new AwaitError(
      'bad-option',
      'mcp-await serve takes one module, such as: mcp-await serve ./server.ts',
    );
  }
  const port = Number(values.port ?? 3000);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new AwaitError('bad-option', `--port ${values.port} must be a whole number from 0 to 65535`);
  }
  const host = values.host ?? '127.0.0.1';
  const secrets = secretsFrom(values.secret);
  const { state } = values;
  if (state !== undefined && state !== 'stored' && state !== 'sealed') {
    throw new AwaitError('bad-option', `--state ${state} must be stored or sealed`);
  }
  const options: AwaitOptions = {
    ...(values.store !== undefined && { store: await openStore(values.store) }),
    ...(values.relay !== undefined && { relay: await openRelay(values.relay) }),
    ...(state !== undefined && { state }),
    ...(secrets !== undefined && { secrets }),
    allowedOrigins: values['allow-origin'] ?? [],
    ...(LOOPBACK.has(host) && { allowedHosts: [...LOOPBACK] }),
    logger: levelLogger(values.log ?? 'warn'),
  };
  const handler = createAwaitHandler(await loadFactory(path), options);
  const listener = toNodeHandler(handler);
  const paths = new Paths();
  const server = createServer((req, res) => {
    const [path = '/'] = (req.url ?? '/').split('?', 1);
    if (path === PATH || paths.find(path)?.wire !== 'mcp') void listener(req, res);
    else res.writeHead(404, { 'content-type': 'text/plain' }).end(`Not found: this server is at ${PATH}\n`);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const taken = `--port ${port} is taken on ${host}; choose another one, or 0 for a free one`;
      reject(error.code === 'EADDRINUSE' ? new AwaitError('bad-option', taken, error) : error);
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  process.stdout.write(`listening on http://${host.includes(':') ? `[${host}]` : host}:${bound}${PATH}\n`);
  let stopping = false;
  const stop = async (): Promise<void> => {
    // Whoever asks twice does not want to wait for what is running.
    if (stopping) process.exit(1);
    stopping = true;
    await handler.close();
    server.close();
    server.closeAllConnections();
    process.exit(0);
  };
  process.on('SIGINT', () => void stop());
  process.on('SIGTERM', () => void stop());
}

function readArguments(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        port: { type: 'string' },
        host: { type: 'string' },
        store: { type: 'string' },
        state: { type: 'string' },
        relay: { type: 'string' },
        secret: { type: 'string', multiple: true },
        'allow-origin': { type: 'string', multiple: true },
        log: { type: 'string' },
      },
    });
  } catch (error) {
    throw new AwaitError('bad-option', error instanceof Error ? error.message : String(error), error);
  }
}

/** Both `--secret` and `MCP_AWAIT_SECRET` may hold several, comma-separated: the first seals. */
function secretsFrom(given: readonly string[] | undefined): string[] | undefined {
  const list = given ?? (process.env.MCP_AWAIT_SECRET === undefined ? [] : [process.env.MCP_AWAIT_SECRET]);
  const secrets = list
    .flatMap((value) => value.split(','))
    .map((value) => value.trim())
    .filter((value) => value !== '');
  return secrets.length === 0 ? undefined : secrets;
}
