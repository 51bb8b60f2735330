/** When what two versions of a tool ask under one key is the same question. */
import { expect, it } from 'vitest';
import { authorsKeyOf, questionOf } from '../../src/call/frame/place.ts';

const asked = (message: string, _meta: object): string =>
  questionOf('elicitation/create', { message, _meta: { 'mcp-await/key': 'go', ..._meta } }).class;

it('is that of its key, whatever its words', () => {
  expect(asked('Go?', {})).toBe(asked('Shall it go?', {}));
});

it('is another one where somebody else has to answer', () => {
  const all = [{}, { 'mcp-await/by': 'person' }, { 'mcp-await/of': 'finance' }, { 'mcp-await/of': 'legal' }];
  expect(new Set(all.map((meta) => asked('Go?', meta))).size).toBe(all.length);
  for (const meta of all) expect(authorsKeyOf(`${asked('Go?', meta)}#1`)).toBe('go');
});
