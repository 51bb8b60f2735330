/** Which wire a path leads to, at any mount point, and where its client is directed to post. */
import { describe, expect, it } from 'vitest';
import { Paths } from '../../../src/doors/http/paths.ts';

describe('a path', () => {
  it.each([
    ['/sse', '', 'sse', '/messages'],
    ['/sse', '/api', 'sse', '/api/messages'],
    ['/', '/sse', 'sse', '/messages'],
    ['/', '/messages', 'messages', '/messages'],
    ['/', '', 'mcp', undefined],
    ['/', '/mcp', 'mcp', undefined],
    ['/sse/', '', 'mcp', undefined],
  ])('%s under %j is of %s', (path, base, wire, messages) => {
    const paths = new Paths();
    expect(paths.find(path, base)?.wire).toBe(wire);
    if (messages !== undefined) expect(paths.messagesFor(path, base)).toBe(messages);
  });

  it('counts with its base where the option names it, and is then all there is', () => {
    const paths = new Paths({ sse: '/api/s', messages: '/api/m' });
    expect(paths.find('/s', '/api')?.wire).toBe('sse');
    expect(paths.messagesFor('/s', '/api')).toBe('/api/m');
  });
});
