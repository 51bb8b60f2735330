/** The table of functions in docs/architecture.md names what is there. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const page = readFileSync(new URL('../../docs/architecture.md', import.meta.url), 'utf8');
const [, table = ''] = /\n(\| \| 2025 [\s\S]*?)\n\n/.exec(page) ?? [];
const cells = [...table.matchAll(/`([\w./-]+\.ts)` `(\w+)`/g)].map(([, file = '', name = '']) => ({
  file,
  name,
}));

describe('the functions that each revision is made of', () => {
  it('are seven for each of six revisions; 2026-07-28 has no stream to follow', () => {
    expect(cells).toHaveLength(7 * 6 - 1);
  });

  for (const { file, name } of cells) {
    it(`${file} has ${name}`, () => {
      const source = readFileSync(new URL(`../../compat/${file}`, import.meta.url), 'utf8');
      expect(source).toMatch(new RegExp(`(function ${name}\\(|^  (async )?${name}(<.*>)?\\()`, 'm'));
    });
  }
});
