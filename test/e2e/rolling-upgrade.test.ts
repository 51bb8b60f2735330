/**
 * An upgrade while a call waits: the old version asks for two logins at once, the new one needs one of them and a
 * third. Answers given are not asked for again, in a store or in the token.
 */
import Keyv from 'keyv';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { roundsServer, type Version } from '../fixtures/rounds-server.ts';
import { accept, post, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { accepted, again, call, DRAFTS, openSession, textIn } from './rounds.ts';

const STATES = ['stored', 'sealed'] as const;

let servers: Served[] = [];

const serve = async (state: (typeof STATES)[number]): Promise<void> => {
  const store = new Keyv();
  const options: AwaitOptions = { secrets: [SECRET], state, ...(state === 'stored' && { store }) };
  const versions: Version[] = ['old', 'new'];
  servers = await Promise.all(versions.map((version) => serveHere(() => roundsServer({ version }), options)));
};

afterEach(() => Promise.all(servers.map((server) => server.close())));

describe.each(STATES)('an upgrade while a call waits, %s', (state) => {
  beforeEach(() => serve(state));

  it.each(DRAFTS)('$revision', async (words) => {
    const session = await openSession(
      servers.map(({ url }) => url),
      words.revision,
    );
    const keysOf = (message: Parameters<typeof words.asked>[0]): string[] =>
      Object.keys(words.asked(message));
    const asking = call('login');
    const first = await session.post(asking, 0);
    expect(keysOf(first.message)).toEqual(['github_login', 'google_login']);
    const both = { github_login: accepted({ name: 'octocat' }), google_login: accepted({ name: 'gus' }) };
    const second = await session.post(
      words.retry(again(asking), words.state(first.message), words.answers(both)),
      1,
    );
    expect(keysOf(second.message)).toEqual(['microsoft_login']);
    const one = words.answers({ microsoft_login: accepted({ name: 'mike' }) });
    const third = await session.post(words.retry(again(asking), words.state(second.message), one), 1);
    expect(textIn(third)).toBe('octocat & mike');
  });

  it('2026-07-28', async () => {
    const [before = '', after = ''] = servers.map(({ url }) => url);
    const first = await post(before, { tool: 'login' });
    expect(first.keys).toEqual(['github_login', 'google_login']);
    const both = {
      ...accept(['github_login'], { name: 'octocat' }),
      ...accept(['google_login'], { name: 'gus' }),
    };
    const second = await post(after, { tool: 'login', state: first.state, responses: both });
    expect(second.keys).toEqual(['microsoft_login']);
    const one = accept(['microsoft_login'], { name: 'mike' });
    const third = await post(after, { tool: 'login', state: second.state, responses: one });
    expect(textOf(third)).toBe('octocat & mike');
  });
});
