/** The reference tables name every member, counter, error code and reason that the sources have, and no other. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ROOT, textOf } from './pages.ts';

function source(path: string): string {
  return readFileSync(`${ROOT}src/${path}`, 'utf8');
}

/** What stands between the head of a declaration and its end. */
function bodyOf(path: string, head: string, end: string): string {
  const text = source(path);
  const at = text.indexOf(head);
  expect(at, `${path} has ${head}`).toBeGreaterThanOrEqual(0);
  return text.slice(at, text.indexOf(end, at));
}

/** The first words in code of the first cells of a part of a page. */
function listed(page: string, heading: string): string[] {
  const text = textOf(page);
  const at = text.indexOf(`${heading}\n`);
  expect(at, `${page} has ${heading}`).toBeGreaterThanOrEqual(0);
  const [part = ''] = text.slice(at + heading.length).split(/^## /m);
  const cells = [...part.matchAll(/^\| (`[^|]*) \|/gm)].map(([, cell = '']) => cell);
  return cells.flatMap((cell) => [...cell.matchAll(/`([\w-]+)/g)].map(([, name = '']) => name));
}

it('docs/handler.md has every member of the handler', () => {
  const body = bodyOf('handler/await-handler.ts', 'export interface AwaitHandler', '\n}\n');
  const members = [...body.matchAll(/^ {2}readonly (\w+)/gm)].map(([, name = '']) => name);
  expect(members.length).toBeGreaterThan(10);
  expect(listed('docs/handler.md', '# The handler').toSorted()).toEqual(members.toSorted());
});

it('docs/handler.md has every counter', () => {
  const body = bodyOf('observe/counters.ts', 'export interface Counters', '\n}\n');
  const counters = [...body.matchAll(/^ {2}(\w+): number/gm)].map(([, name = '']) => name);
  expect(counters.length).toBeGreaterThan(10);
  expect(listed('docs/handler.md', '## Counters').toSorted()).toEqual(counters.toSorted());
});

it('docs/troubleshooting.md has every error code', () => {
  const body = bodyOf('base/values.ts', 'export type AwaitErrorCode', ';\n\n');
  const codes = [...body.matchAll(/^ {2}\| '([\w-]+)'/gm)].map(([, name = '']) => name);
  expect(codes.length).toBeGreaterThan(20);
  expect(listed('docs/troubleshooting.md', '## Errors by code').toSorted()).toEqual(codes.toSorted());
});

it('docs/troubleshooting.md has every reason that a client may read', () => {
  const body = bodyOf('base/values.ts', 'export type Reason', ';\n');
  const reasons = [...body.matchAll(/'([\w-]+)'/g)].map(([, name = '']) => name);
  const [, part = ''] = textOf('docs/troubleshooting.md').split('## Errors by code');
  const written = new Set(
    [...part.matchAll(/`([\w-]+)` \|$|^Two more reasons .*$/gm)].flatMap(([line]) =>
      [...line.matchAll(/`([\w-]+)`/g)].map(([, name = '']) => name),
    ),
  );
  expect(reasons.filter((reason) => !written.has(reason))).toEqual([]);
});
