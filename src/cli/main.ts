#!/usr/bin/env node
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
/** The command line: `serve`, `proxy`, `compare` and `calls`. */
import { AwaitError, optionError } from '../base/values.ts';
import type { PeerHost } from '../proxy/host.ts';
import { remoteHost, watchedRemoteHost } from '../proxy/remote-host.ts';
import { stdioHost } from '../proxy/stdio-host.ts';
import { helpOfFlags, meant, readArguments } from './arguments.ts';
import { CALLS_USAGE, calls } from './calls.ts';
import { failureText } from './failure.ts';
import { type Draft, FLAGS, type PeerDraft, PROXY_FLAGS } from './flags.ts';
import { checkForwarding, Forwarding } from './forwarding.ts';
import { serveHost } from './listen.ts';
import { loadFactory } from './load.ts';
import { levelLogger } from './logger.ts';

const TITLE = 'mcp-await: await-style MCP servers for every client\n';
const SERVE = `
  mcp-await serve <module> [options]      a module whose default export is a factory that makes a server

    mcp-await serve ./server.ts --port 8080
    mcp-await serve ./server.ts --store redis://127.0.0.1 --relay redis://127.0.0.1
    mcp-await serve ./server.ts --stdio
`;
const PROXY = `
  mcp-await proxy [options] -- <command> [args…]      a server of any language, unmodified
  mcp-await proxy [options] --url <endpoint>          a remote server, of any revision

    mcp-await proxy -- npx -y @modelcontextprotocol/server-filesystem .
    mcp-await proxy --stdio -- uvx mcp-server-git
    mcp-await proxy --url https://example.com/mcp --header Authorization='Bearer …'
`;
const COMPARE = `
  mcp-await compare <module> [<new module>]           one server under every revision, or two versions of one

    mcp-await compare ./server.ts --html compare.html
`;
const FOOT =
  'TIME is a number with ms, s, m, h or d. All limits: docs/options.md; the proxy: docs/proxy.md\n';

const COMMANDS = {
  serve: { run: serve, usage: () => `${TITLE}${SERVE}\n${helpOfFlags()}\n${FOOT}` },
  proxy: {
    run: proxy,
    usage: () => `${TITLE}${PROXY}\n${helpOfFlags(PROXY_FLAGS)}\n${helpOfFlags()}\n${FOOT}`,
  },
  calls: { run: calls, usage: () => `${TITLE}\n${CALLS_USAGE}` },
} as const;

const USAGE = `${TITLE}${SERVE}${PROXY}${COMPARE}
${CALLS_USAGE}
  mcp-await help <command>                the options of a command
  mcp-await --version                     the version of this package

  exit code 0: it did what it was asked; 1: it failed, or compare found a difference;
  2: the arguments, the module, the address or the store cannot be used
`;

async function main(args: readonly string[]): Promise<void> {
  // The process that started this one may stop reading: a broken pipe must not end a server.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const [first = '--help', ...given] = args;
  const isHelp = ['help', '--help', '-h'].includes(first);
  if (isHelp && given.length === 0) {
    process.stdout.write(USAGE);
    return;
  }
  if (['--version', '-v', '-V'].includes(first)) {
    process.stdout.write(`${createRequire(import.meta.url)('mcp-await/package.json').version}\n`);
    return;
  }
  const [command = '', ...rest] = isHelp ? [...given, '--help'] : args;
  if (command === 'compare') {
    const { compareCommand } = await import('./compare.ts');
    const code = await compareCommand(rest);
    // Handles that the comparison's servers and clients leave open must not keep the process alive.
    process.stdout.write('', () => process.exit(code));
    return;
  }
  if (command !== 'serve' && command !== 'proxy' && command !== 'calls') {
    const hint = meant(command, [...Object.keys(COMMANDS), 'compare', 'help']) ?? 'mcp-await help lists them';
    throw optionError(`there is no command '${command}'; ${hint}`);
  }
  const { run, usage } = COMMANDS[command];
  const dashes = rest.indexOf('--');
  const own = dashes < 0 ? rest : rest.slice(0, dashes);
  if (own.includes('--help') || own.includes('-h')) process.stdout.write(usage());
  else if (command === 'serve' && own.includes('--watch') && !own.includes('--stdio')) watched(rest);
  else await run(command === 'proxy' ? own : rest, dashes < 0 ? [] : rest.slice(dashes + 1));
}

/** A module's server, in a process that Node starts again when a file which it has loaded changes. */
function watched(args: readonly string[]): void {
  const own = ['serve', ...args.filter((arg) => arg !== '--watch')];
  const child = spawn(process.execPath, ['--watch', ...process.execArgv, process.argv[1] ?? '', ...own], {
    stdio: 'inherit',
  });
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => child.kill(name));
  child.once('exit', (code) => process.exit(code ?? 1));
}

/** A module's server. */
async function serve(own: readonly string[]): Promise<void> {
  const draft = await readArguments(own);
  const [path] = draft.positionals;
  if (path === undefined || draft.positionals.length > 1) {
    throw optionError('serve takes one module, such as: mcp-await serve ./server.ts');
  }
  await serveHost(draft, 'warn', () => loadFactory(path));
}

main(process.argv.slice(2)).catch((error: unknown) => {
  // 2: what the command was given (arguments, module, address, store) cannot be used. 1: it failed later.
  const code = ['bad-option', 'store'].includes(AwaitError.from(error).code) ? 2 : 1;
  // A store or a relay that was opened before would keep the process for ever.
  process.stderr.write(`mcp-await: ${failureText(error)}\n`, () => process.exit(code));
});

// --- mcp-await proxy ---

/** `mcp-await proxy`: a server of any language as a child process, or a remote one. */

async function proxy(own: readonly string[], [command, ...rest]: readonly string[]): Promise<void> {
  const draft = await readArguments(own, { ...PROXY_FLAGS, ...FLAGS }, 'proxy');
  const { peer, positionals } = draft;
  if (positionals.length > 0 || (command === undefined) === (peer.url === undefined)) {
    const found = positionals.length > 0 ? `'${positionals[0]}' stands before it` : 'give one of them';
    throw optionError(
      `proxy takes a command after --, or --url; ${found}: mcp-await proxy -- npx -y <server>`,
    );
  }
  // --replay applies to calls that were sent to the server, and only the host knows these.
  delete draft.options.replay;
  const forwarding = forwardingOf(draft);
  const host = hostOf(peer, command, rest, forwarding);
  const load = async (): Promise<PeerHost> => {
    // A wrong command fails here, not at the first client. Where the server wants a token, there is none yet.
    if (!(await forwarding?.check())) await host.check();
    return host;
  };
  await serveHost(draft, 'info', load, forwarding);
}

function forwardingOf(draft: Draft): Forwarding | undefined {
  const { options, peer } = draft;
  if (!peer.forwardAuthorization) return undefined;
  checkForwarding(draft);
  options.logger ??= levelLogger('info');
  return new Forwarding({ url: peer.url ?? '', headers: peer.headers }, options.logger);
}

function hostOf(
  { options, url = '', headers }: PeerDraft,
  command: string | undefined,
  args: readonly string[],
  forwarding: Forwarding | undefined,
): PeerHost {
  if (command !== undefined) return stdioHost({ ...options, command, args });
  const remote = { ...options, url, headers };
  if (forwarding === undefined) return remoteHost(remote);
  return watchedRemoteHost({ ...remote, forwardAuthorization: true }, forwarding.refused);
}
