#!/usr/bin/env node
/** The command line: `serve`, `proxy`, `compare` and `calls`. */
import { createRequire } from 'node:module';
import process from 'node:process';
import { AwaitError } from '../base/values.ts';
import { helpOfFlags, meant, readArguments } from './arguments.ts';
import { CALLS_USAGE, calls } from './calls.ts';
import { failureCode, failureText } from './failure.ts';
import { PROXY_FLAGS } from './flags.ts';
import { serveHost } from './listen.ts';
import { loadFactory } from './load.ts';
import { proxy } from './proxy.ts';

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
    throw new AwaitError('bad-option', `there is no command '${command}'; ${hint}`);
  }
  const { run, usage } = COMMANDS[command];
  const dashes = rest.indexOf('--');
  const own = dashes < 0 ? rest : rest.slice(0, dashes);
  if (own.includes('--help') || own.includes('-h')) process.stdout.write(usage());
  else await run(rest);
}

/** A module's server. */
async function serve(args: readonly string[]): Promise<void> {
  const draft = await readArguments(args);
  const [path] = draft.positionals;
  if (path === undefined || draft.positionals.length > 1) {
    throw new AwaitError('bad-option', 'serve takes one module, such as: mcp-await serve ./server.ts');
  }
  await serveHost(draft, 'warn', () => loadFactory(path));
}

main(process.argv.slice(2)).catch((error: unknown) => {
  // A store or a relay that was opened before would keep the process for ever.
  process.stderr.write(`mcp-await: ${failureText(error)}\n`, () => process.exit(failureCode(error)));
});
