/** Where two JSON values differ, and the lines of `docs/differences.md` that say why they may. */
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';

/** Paths (`*` for any place in an array) at which native and hosted differ, each with the name of its line in `docs/differences.md`. */
export type Differs = Readonly<Record<string, string>>;

const [PAGE = ''] = readFileSync(new URL('../../docs/differences.md', import.meta.url), 'utf8').split(
  'Differences that the suite does not compare',
);
/** The names of its lines: the first cell of each row. */
export const LISTED: ReadonlySet<string> = new Set(
  [...PAGE.matchAll(/^\| `([a-z0-9-]+)`/gm)].map(([, name]) => name ?? ''),
);

/** Asserts that two values are equal but for the listed differences, and that these are there. */
export function expectSame(native: unknown, hosted: unknown, differs: Differs = {}): void {
  for (const name of Object.values(differs)) {
    expect(LISTED, `docs/differences.md has no line for ${name}`).toContain(name);
  }
  const found = differences(plain(native), plain(hosted));
  const explain = JSON.stringify({ native, hosted }, undefined, 1);
  expect([...new Set(found)].sort(), explain).toEqual(Object.keys(differs).sort());
}

const plain = (value: unknown): unknown =>
  value === undefined ? undefined : JSON.parse(JSON.stringify(value));

function differences(one: unknown, other: unknown, path = ''): string[] {
  if (isObject(one) && isObject(other)) {
    const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
    return [...keys].flatMap((key) =>
      differences(one[key], other[key], path === '' ? key : `${path}.${key}`),
    );
  }
  if (Array.isArray(one) && Array.isArray(other) && one.length === other.length) {
    return one.flatMap((item, index) => differences(item, other[index], `${path}.*`));
  }
  return JSON.stringify(one) === JSON.stringify(other) ? [] : [path];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
