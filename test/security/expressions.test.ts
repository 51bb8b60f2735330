/**
 * Every regular expression of the package takes at most linear time, whatever it is given: each literal of the source
 * is listed and analysed for what makes it backtrack, and tried with that.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSync } from 'oxc-parser';
import { analyse } from 'scslre';
import { describe, expect, it } from 'vitest';

const ROOT = new URL('../../', import.meta.url).pathname;

interface Literal {
  readonly where: string;
  readonly source: string;
  readonly flags: string;
}

function literalsIn(folder: string): Literal[] {
  const files = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' });
  return files
    .filter((name) => name.endsWith('.ts'))
    .flatMap((name) => {
      const path = join(folder, name);
      const { program } = parseSync(path, readFileSync(join(ROOT, path), 'utf8'));
      return [...expressionsIn(program)].map(({ pattern, flags }) => ({
        where: `${path} /${pattern}/${flags}`,
        source: pattern,
        flags,
      }));
    });
}

interface Expression {
  readonly pattern: string;
  readonly flags: string;
}

function* expressionsIn(node: unknown): Generator<Expression> {
  if (typeof node !== 'object' || node === null) return;
  if ('regex' in node && isExpression(node.regex)) yield node.regex;
  else for (const child of Object.values(node)) yield* expressionsIn(child);
}

function isExpression(value: unknown): value is Expression {
  return typeof value === 'object' && value !== null && 'pattern' in value && 'flags' in value;
}

const LITERALS = [...literalsIn('src'), ...literalsIn('compat')];

describe('a regular expression', () => {
  it('is found wherever it stands', () => {
    expect(LITERALS.length).toBeGreaterThan(30);
  });

  it('of the kind that was found is told', () => {
    const old = { source: '(?:^|,)\\s*(?:gzip|\\*)\\s*(?:;\\s*q=([\\d.]+))?\\s*(?:,|$)', flags: 'i' };
    expect(analyse(old).reports.length).toBeGreaterThan(0);
    expect(analyse({ source: '^(a+)+$', flags: '' }).reports[0]?.exponential).toBe(true);
  });

  it.each(LITERALS.map(({ where, ...literal }) => [where, literal] as const))(
    'takes linear time: %s',
    (_where, literal) => {
      expect(analyse(literal).reports.map(({ type, character }) => `${type} of ${character.pick}`)).toEqual(
        [],
      );
    },
  );
});
