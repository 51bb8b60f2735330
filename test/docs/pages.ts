/** The documentation as the tests read it: pages, their snippets, their headings and links. */
import { readdirSync, readFileSync } from 'node:fs';

export const ROOT = new URL('../../', import.meta.url).pathname;

/** Every page, by its path from the project's root. */
export const PAGES: readonly string[] = [
  'README.md',
  'SECURITY.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  ...readdirSync(`${ROOT}docs`)
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => `docs/${name}`),
];

export interface Snippet {
  readonly page: string;
  /** The nearest heading above it. */
  readonly heading: string;
  /** Of its first line in the page, counted from 1. */
  readonly line: number;
  readonly code: string;
  /** What stands in a comment above it, `<!-- ts: … -->`: declarations of the names that it assumes, on one line. */
  readonly preamble: string;
}

export function textOf(page: string): string {
  return readFileSync(`${ROOT}${page}`, 'utf8');
}

/** The code blocks of a page that are marked as `language`. */
export function snippetsOf(page: string, language = 'ts'): Snippet[] {
  const found: Snippet[] = [];
  let heading = '';
  let preamble = '';
  let open: { line: number; language: string; code: string[] } | undefined;
  for (const [index, text] of textOf(page).split('\n').entries()) {
    const fence = /^```(\w*)/.exec(text);
    if (fence !== null && open === undefined) open = { line: index + 2, language: fence[1] ?? '', code: [] };
    else if (fence !== null && open !== undefined) {
      if (open.language === language)
        found.push({ page, heading, line: open.line, code: `${open.code.join('\n')}\n`, preamble });
      open = undefined;
    } else if (open !== undefined) open.code.push(text);
    else {
      preamble = /^<!-- ts: (.*) -->$/.exec(text)?.[1] ?? '';
      heading = /^#+ (.*)/.exec(text)?.[1] ?? heading;
    }
  }
  return found;
}
