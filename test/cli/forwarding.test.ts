/** `--forward-authorization` with flags that do not go together. The rest is in e2e/proxy-authorization.test.ts. */
import { describe, expect, it } from 'vitest';
import { readArguments } from '../../src/cli/arguments.ts';
import { FLAGS, PROXY_FLAGS } from '../../src/cli/flags.ts';
import { checkForwarding } from '../../src/cli/forwarding.ts';

const URL_FLAG = ['--url', 'https://example.com/mcp'];

async function draftOf(...args: readonly string[]) {
  return readArguments(['--forward-authorization', ...args], { ...PROXY_FLAGS, ...FLAGS }, 'proxy');
}

describe('--forward-authorization', () => {
  it('goes with a remote server, and headers besides Authorization', async () => {
    const draft = await draftOf(...URL_FLAG, '--header', 'x-key=1', '--instance', 'caller');
    expect(draft.peer.forwardAuthorization).toBe(true);
    expect(() => checkForwarding(draft)).not.toThrow();
  });

  it.each([
    ['a command', [], /add --url/],
    ['a token of its own', [...URL_FLAG, '--header', 'authorization=Bearer x'], /--header Authorization/],
    ['a login', [...URL_FLAG, '--ask-jwks', 'https://a.example/jwks'], /--ask-jwks/],
    ['pairing', [...URL_FLAG, '--ask-pair'], /--ask-pair/],
    ['stdio', [...URL_FLAG, '--stdio'], /leave out --stdio/],
    ['one instance for all', [...URL_FLAG, '--instance', 'process'], /--instance process/],
  ])('does not go with %s', async (_what, args, why) => {
    const draft = await draftOf(...args);
    expect(() => checkForwarding(draft)).toThrow(why);
  });
});
