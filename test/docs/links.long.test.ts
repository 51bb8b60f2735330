/** Every relative link and anchor of the documentation has a target, and the target is in the package. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PAGES, ROOT, textOf } from './pages.ts';

interface Link {
  readonly path: string;
  readonly anchor: string;
}

/** Relative links, by their path from the project's root; code blocks are skipped. */
function linksOf(page: string): Link[] {
  const text = textOf(page).replace(/```[\s\S]*?```/g, '');
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => {
      const [path = '', anchor = ''] = target.split('#');
      return { path: path === '' ? page : normalize(join(dirname(page), path)), anchor };
    });
}

/** As GitHub makes them of headings. */
function anchorsOf(page: string): string[] {
  const text = textOf(page).replace(/```[\s\S]*?```/g, '');
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replace(/ /g, '-'),
  );
}

function packedFiles(): ReadonlySet<string> {
  const packed = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const [{ files }] = JSON.parse(packed.stdout) as [{ files: { path: string }[] }];
  return new Set(files.map(({ path }) => path));
}

describe('the documentation', () => {
  it.each(PAGES)('%s links to what is there', (page) => {
    const broken = linksOf(page).filter(
      ({ path, anchor }) =>
        !existsSync(`${ROOT}${path}`) ||
        (anchor !== '' && !(path.endsWith('.md') && anchorsOf(path).includes(anchor))),
    );
    expect(broken).toEqual([]);
  });

  it('links to nothing that the published package lacks', () => {
    const packed = packedFiles();
    const published = PAGES.filter((page) => packed.has(page));
    expect(published).toContain('README.md');
    const missing = published
      .flatMap((page) => linksOf(page).map(({ path }) => `${page} → ${path}`))
      .filter((link) => {
        const path = link.split(' → ')[1] ?? '';
        const isFolder = existsSync(`${ROOT}${path}`) && statSync(`${ROOT}${path}`).isDirectory();
        return isFolder ? ![...packed].some((file) => file.startsWith(path)) : !packed.has(path);
      });
    expect(missing).toEqual([]);
  });

  it('is listed in its map and in llms.txt, page by page', () => {
    const inMap = linksOf('docs/README.md').map(({ path }) => path);
    const inList = [...readFileSync(`${ROOT}llms.txt`, 'utf8').matchAll(/\]\(([^)]+)\)/g)].map(
      ([, path]) => path,
    );
    const pages = PAGES.filter((page) => !['README.md', 'docs/README.md'].includes(page));
    expect(pages.filter((page) => !inMap.includes(page))).toEqual([]);
    expect(pages.filter((page) => !inList.includes(page))).toEqual([]);
    expect(inList.filter((path = '') => !existsSync(`${ROOT}${path}`))).toEqual([]);
  });
});
