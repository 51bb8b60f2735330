#!/usr/bin/env node
/** The command line: `mcp-await serve <module>`. */
import process from 'node:process';
import { AwaitError } from '../error.ts';
import { serve } from './serve.ts';

const USAGE = `mcp-await: await-style MCP servers for every client

  mcp-await serve <module> [options]

  <module>             its default export is a factory that makes a server
  --port N             default 3000; 0 takes a free one
  --host NAME          default 127.0.0.1
  --store URL          memory: | sqlite://file | redis://… | postgres://…   (default memory:)
  --state KIND         stored | sealed: where suspended calls live          (default stored)
  --relay URL          redis://… | nats://…: a call goes on where its frame is (default none)
  --secret VALUE       seals tokens; repeat it for more, or use MCP_AWAIT_SECRET, comma-separated
  --allow-origin URL   an origin that browsers may come from; repeatable
  --log LEVEL          error | warn | info | debug                          (default warn)
`;

async function main(args: readonly string[]): Promise<void> {
  const [command, ...rest] = args;
  switch (command) {
    case 'serve':
      if (rest.includes('--help') || rest.includes('-h')) process.stdout.write(USAGE);
      else await serve(rest);
      return;
    case undefined:
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(USAGE);
      return;
    default:
      throw new AwaitError('bad-option', `there is no command '${command}'\n\n${USAGE}`);
  }
}

main(process.argv.slice(2)).catch((error: unknown) => {
  const failure = AwaitError.from(error);
  const known = failure.code !== 'internal';
  // A store or a relay that was opened before would keep the process for ever.
  process.stderr.write(
    `mcp-await: ${known ? failure.message : failure.cause instanceof Error ? failure.cause.stack : failure.message}\n`,
    () => process.exit(1),
  );
});
