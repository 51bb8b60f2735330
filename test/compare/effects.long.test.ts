/** A tool that acts outside of a step is reported, with the author's line; one that acts in a step is not. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Comparison, everyRevision, tableOf } from '../../src/compare/index.ts';
import { pageOf } from '../../src/compare/page.ts';
import '../../src/compare/vitest.ts';
import counting from '../fixtures/side-by-side/counting-server.ts';
import build, { ACTS } from '../fixtures/side-by-side/effect-server.ts';

const FILE = 'effect-server.ts';
const source = readFileSync(new URL(`../fixtures/side-by-side/${FILE}`, import.meta.url), 'utf8').split('\n');
const ONE = { revisions: ['2026-07-28'] as const, callers: false };

function effectsOf({ differences }: Comparison): string[] {
  return differences.flatMap(({ kind, text }) => (kind === 'effect' ? [text] : []));
}

/** The author's line in a text. */
function lineIn(text: string): string {
  return source[Number(/\(effect-server\.ts:(\d+)\)/.exec(text)?.[1]) - 1] ?? '';
}

describe('an effect outside of a step', () => {
  it.each([
    ['mail_async', 'wrote a file', 'appendFile('],
    ['mail_sync', 'wrote a file', 'appendFileSync('],
    ['stream', 'wrote a file', 'createWriteStream('],
    ['handle', 'wrote a file', 'log.write('],
    ['emptied', 'emptied a file', "openSync(file, 'w')"],
    ['copied', 'wrote a file', 'cp('],
    ['spawn', 'started a process', "spawn('true')"],
    ['exec', 'started a process', "execSync('true')"],
    ['fetch', 'sent a request (POST http://127.0.0.1:', 'fetch('],
    ['http', 'sent a request (POST http://127.0.0.1', 'request('],
    ['query', 'sent data over a socket', "connection.write('INSERT')"],
    ['datagram', 'sent a datagram', "socket.send('mail'"],
  ])('is a difference: %s', async (tool, what, line) => {
    // An earlier call has opened its connections and files.
    const comparison = await everyRevision(
      build,
      { steps: [{ call: `${tool}-in-step` }, { call: tool }] },
      ONE,
    );
    const [text = '', ...more] = effectsOf(comparison);
    expect(text).toContain(`effect: ${tool} ${what}`);
    expect(text).toContain('outside of a step; it ran 2 times in one call');
    expect(text).toMatch(/await step\('[a-z]+', \(\) => …\)/);
    expect(text).not.toContain('secret');
    expect(lineIn(text)).toContain(line);
    expect(more).toEqual([]);
    expect(tableOf(comparison)).toContain('≠ effect');
  });

  it('fails an expectation, whose first line it is, and is on the page', async () => {
    const scenario = { steps: [{ call: 'mail_async' }] };
    const failed: unknown = await expect(build)
      .toEqualOnEveryRevision(scenario, ONE)
      .catch((error: unknown) => error);
    const [head] = String(failed).split('\n');
    expect(head).toMatch(
      /^Error: ≠ step 1 \(mail_async\), on 2026-07-28: effect: mail_async wrote a file \(/,
    );
    expect(pageOf(await everyRevision(build, scenario, ONE))).toContain('"effect: mail_async wrote a file (');
  });

  it('is none in a step, after the last ask, where it only reads or prints, and where it is allowed', async () => {
    const quiet = Object.keys(ACTS).flatMap((name) => [`${name}-in-step`, `${name}-afterwards`]);
    const steps = ['read', 'print', ...quiet].map((call) => ({ call }));
    const allowed = { call: 'mail_sync', expect: { effects: 'allowed' as const } };
    const comparison = await everyRevision(build, { steps: [...steps, allowed] }, ONE);
    expect(effectsOf(comparison)).toEqual([]);
    expect(comparison.differences).toEqual([]);
  });

  it('is one line for all revisions, also for those on which it ran once', async () => {
    const revisions = ['2025-11-25', '2026-07-28'] as const;
    const steps = [{ call: 'mail_async' }];
    const { differences } = await everyRevision(build, { steps }, { revisions, callers: false });
    expect(differences).toEqual([
      expect.objectContaining({ kind: 'effect', step: 0, columns: [...revisions] }),
    ]);
    const once = await everyRevision(build, { steps }, { revisions: ['2025-11-25'], callers: false });
    expect(effectsOf(once)[0]).toContain('a call that continues in another process runs it again');
  });
});

describe('a variable of a module', () => {
  it('is a difference where a replay changes it once more, with the line that declares it', async () => {
    const tools = ['count', 'post', 'mailer', 'keyed', 'total', 'cached', 'clock', 'stepped'];
    const comparison = await everyRevision(counting, { steps: tools.map((call) => ({ call })) }, ONE);
    expect(effectsOf(comparison)).toEqual([
      expect.stringMatching(
        /^effect: count changed the module variable sent \(counting-server\.ts:6\) outside of a step: by 2 in one call that is run again, by 1 in one that is not\. /,
      ),
      expect.stringMatching(/^effect: post changed the module variable outbox \(counting-state\.ts:2\)/),
      expect.stringMatching(
        /^effect: mailer changed the module variable mailer\.sent \(counting-state\.ts:8\)/,
      ),
      expect.stringMatching(/^effect: keyed changed the module variable mails \(counting-server\.ts:12\)/),
      expect.stringMatching(
        /^effect: total changed the module variable Mailer\.total \(counting-state\.ts:4\)/,
      ),
    ]);
    expect(comparison.differences).toHaveLength(5);
  });
});

it('a counter that a result prints is a difference where a replay counts more, and none where it does not', {
  timeout: 60_000,
}, async () => {
  const comparison = await everyRevision(
    counting,
    { steps: [{ call: 'printed' }, { call: 'ordered' }] },
    ONE,
  );
  expect(comparison.differences.every(({ kind, step }) => kind === 'effect' && step === 0)).toBe(true);
  expect(effectsOf(comparison).filter((text) => text.includes('counts'))).toEqual([
    expect.stringMatching(
      /^effect: content\[0\]\.text counts what is run again: "mail \d+ was .*", and one call later "mail \d+ was /,
    ),
  ]);
});
