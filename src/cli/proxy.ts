/** `mcp-await proxy`: a server of any language as a child process, or a remote one. */
import { AwaitError } from '../base/error.ts';
import type { PeerHost } from '../proxy/host.ts';
import { remoteHost } from '../proxy/remote-host.ts';
import { stdioHost } from '../proxy/stdio-host.ts';
import { readArguments } from './arguments.ts';
import { FLAGS, type PeerDraft, PROXY_FLAGS } from './flags.ts';
import { serveHost } from './listen.ts';

export async function proxy(args: readonly string[]): Promise<void> {
  const dashes = args.indexOf('--');
  const [command, ...rest] = dashes < 0 ? [] : args.slice(dashes + 1);
  const own = dashes < 0 ? args : args.slice(0, dashes);
  const draft = await readArguments(own, { ...PROXY_FLAGS, ...FLAGS }, 'proxy');
  const { peer, positionals } = draft;
  if (positionals.length > 0 || (command === undefined) === (peer.url === undefined)) {
    const found = positionals.length > 0 ? `'${positionals[0]}' stands before it` : 'give one of them';
    throw new AwaitError(
      'bad-option',
      `proxy takes a command after --, or --url; ${found}. Such as: mcp-await proxy -- npx -y @modelcontextprotocol/server-memory`,
    );
  }
  // --replay applies to calls that were sent to the server, and only the host knows these.
  delete draft.options.replay;
  const host = hostOf(peer, command, rest);
  await serveHost(draft, 'info', async () => {
    // A wrong command fails here, not at the first client.
    await host.check();
    return host;
  });
}

function hostOf(
  { options, url = '', headers }: PeerDraft,
  command: string | undefined,
  args: readonly string[],
): PeerHost {
  if (command !== undefined) return stdioHost({ ...options, command, args });
  return remoteHost({ ...options, url, headers });
}
