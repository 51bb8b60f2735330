/** `mcp-await proxy`: a server of any language as a child process, or a remote one. */
import { AwaitError } from '../base/values.ts';
import type { PeerHost } from '../proxy/host.ts';
import { remoteHost, watchedRemoteHost } from '../proxy/remote-host.ts';
import { stdioHost } from '../proxy/stdio-host.ts';
import { readArguments } from './arguments.ts';
import { type Draft, FLAGS, type PeerDraft, PROXY_FLAGS } from './flags.ts';
import { checkForwarding, Forwarding } from './forwarding.ts';
import { serveHost } from './listen.ts';
import { levelLogger } from './logger.ts';

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
