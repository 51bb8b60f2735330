/** Options that make no sense: a typed error at construction, which says what to write instead. */
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import KeyvSqlite from '@keyv/sqlite';
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import { AwaitError, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { some } from '../short.ts';
import { LogBook, SECRET } from './harness.ts';
import { SQLITE } from './services.ts';

const factory = () => buildServer(() => {});

function refusal(options: unknown, make: unknown = factory): AwaitError {
  try {
    void createAwaitHandler(make as typeof factory, options as AwaitOptions).close();
  } catch (error) {
    expect(error).toBeInstanceOf(AwaitError);
    return error as AwaitError;
  }
  throw new Error(`${JSON.stringify(options)} was taken for good`);
}

describe('createAwaitHandler refuses', () => {
  it.each<[string, object]>([
    ['store', { store: new Map() }],
    ['store', { store: 'redis://127.0.0.1' }],
    ['state', { state: 'somewhere' }],
    ['secrets', { secrets: [] }],
    ['secrets', { secrets: SECRET }],
    ['secrets', { secrets: [undefined] }],
    ['secrets', { secrets: ['too short'] }],
    ['secrets', { secrets: [SECRET, 'too short'] }],
    ['secrets', { state: 'sealed' }],
    ['ttl', { ttl: 0 }],
    ['ttl', { ttl: -1 }],
    ['ttl', { ttl: Number.NaN }],
    ['ttl', { ttl: Infinity }],
    ['ttl', { ttl: '1h' }],
    ['instance', { instance: 'server' }],
    ['replay', { replay: 'never' }],
    ['drift', { drift: 'ignore' }],
    ['onDrop', { onDrop: 'throw' }],
    ['askDelay', { askDelay: 5 }],
    ['shedAbove', { limits: { shedAbove: 0 } }],
    ['stalled', { limits: { stalled: 500 } }],
    ['tasks', { tasks: 'late' }],
    ['tasks', { tasks: () => 'now', state: 'sealed', secrets: [SECRET] }],
    ['revisions', { revisions: ['DRAFT-SEP-1858'], state: 'sealed', secrets: [SECRET] }],
    ['principal', { principal: 'sub' }],
    ['limits', { limits: { frames: -1 } }],
    ['limits', { limits: { asks: 0 } }],
    ['limits', { limits: { bodyBytes: '4mb' } }],
    ['limits', { limits: { memory: 5 } }],
    ['limits', { limits: 5 }],
    ['allowedOrigins', { allowedOrigins: 'https://app.example' }],
    ['allowedHosts', { allowedHosts: 'app.example' }],
    ['revisions', { revisions: [] }],
    ['revisions', { revisions: ['2024-01-01'] }],
    ['revisions', { revisions: '2026-07-28' }],
    ['revisions', { revisions: [5] }],
    ['revisions', { revisions: [{ literal: true }] }],
    ['literal', { revisions: [{ name: '2026-07-28', literal: true }] }],
    ['literal', { revisions: [{ name: 'DRAFT-SEP-1858', literal: 'yes' }] }],
    ['ping', { revisions: ['*', { name: 'workspace-sse', ping: 5 }] }],
    ['capabilities', { revisions: [{ name: 'workspace-sse', capabilities: 'elicitation' }] }],
    ['capabilities', { revisions: [{ name: 'workspace-sse', capabilities: ['elicitation'] }] }],
    ['capabilities', { revisions: [{ name: 'workspace-sse', capabilities: { elicitation: true } }] }],
    ['workspace', { workspace: { capabilities: {} } }],
    ['audience', { audience: 5 }],
    ['steps', { steps: 'no' }],
    ['logger', { logger: 'console' }],
    ['relay', { relay: {} }],
    ['sekrets', { sekrets: [SECRET] }],
  ])('%s: %j', (name, options) => {
    const error = refusal(name === 'secrets' ? options : { secrets: [SECRET], ...options });
    expect(error.code).toBe('bad-option');
    expect(error.message).toContain(name);
  });

  it.each([[undefined], [{}], [new Keyv()]])('%j instead of a factory', (make) => {
    if (make === undefined) expect(refusal({}, null).code).toBe('bad-option');
    else expect(refusal({}, make).message).toContain('() => buildServer()');
  });

  it('a shared store without a secret, and says which variable to set', () => {
    const store = new Keyv(new KeyvSqlite({ uri: SQLITE.url() }));
    const error = refusal({ store });
    expect(error.code).toBe('bad-option');
    expect(error.message).toContain('MCP_AWAIT_SECRET');
  });

  it('nothing about an in-memory store without a secret, which it warns of', async () => {
    const logger = new LogBook();
    await createAwaitHandler(factory, { logger }).close();
    expect(logger.lines.map(({ level }) => level)).toEqual(['warn']);
    expect(logger.text).toContain('without secrets tokens');
  });
});

describe('mcp-await serve ends with 2 and one sentence for', () => {
  const cli = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
  const server = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
  const harness = new URL('harness.ts', import.meta.url).pathname;

  it.each(
    some<[string, string[], RegExp]>([
      ['no module', [], /takes one module/],
      ['a port that is none', [server, '--port', 'abc'], /--port abc must be/],
      ['a state that is none', [server, '--state', 'nowhere'], /--state nowhere must be/],
      ['a store that is none', [server, '--store', 'mongo://x'], /--store mongo:…: use/],
      ['a level that is none', [server, '--log', 'loud'], /--log loud must be/],
      ['an option that is none', [server, '--loud'], /--loud/],
      ['a shared store without a secret', [server, '--store', SQLITE.url()], /MCP_AWAIT_SECRET/],
      ['a secret that is too short', [server, '--secret', 'short'], /at least 32 bytes/],
      ['a module without a factory', [harness], /must be a factory/],
    ]),
  )('%s', (_name, args, sentence) => {
    const env = { ...process.env };
    delete env.MCP_AWAIT_SECRET;
    const { status, stderr } = spawnSync(process.execPath, [cli, 'serve', ...args], { env, timeout: 60_000 });
    expect(status).toBe(2);
    expect(stderr.toString()).toMatch(sentence);
    expect(stderr.toString()).not.toContain('    at ');
  });
});
