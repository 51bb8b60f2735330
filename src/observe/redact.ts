/**
 * Makes log lines safe in one place: any of them may hold a stranger's text (a token's `kid`, the id of an answer), and
 * errors of other packages may hold a store's URL with its password. Control characters are escaped, so a line cannot
 * be forged; long texts are cut, so a disk cannot be filled. Ids of calls and sessions become the labels of `mcp-await
 * calls`: an anonymous caller's task, ask or session of 2024-11-05 belongs to anyone who holds its id.
 */
import type { JsonObject } from '../base/values.ts';
import type { Logger } from './logger.ts';

const CREDENTIALS = /\/\/[^\s/@]+@/g;
/** Longest text that is logged of one value, and how many values of a list or an object; in characters. */
const LENGTH = 1_000;
const ITEMS = 20;
const DEPTH = 4;
/** Details that may hold an error, or whatever was thrown. */
const THROWN = /^(?:error|cause)$/;

export function guardedLogger(logger: Logger): Logger {
  return rewritten(logger, (text) => {
    const cut = text.length > LENGTH ? `${text.slice(0, LENGTH)}… (${text.length} characters)` : text;
    return escaped(cut.replace(CREDENTIALS, '//***@'));
  });
}

/** A logger all of whose texts are rewritten, those in its details among them. */
function rewritten(logger: Logger, text: (text: string) => string): Logger {
  const value = (one: unknown, depth: number): unknown => {
    if (typeof one === 'string') return text(one);
    if (one instanceof Error) return text(String(one));
    if (typeof one !== 'object' || one === null) return one;
    if (depth === 0) return '…';
    if (Array.isArray(one)) return one.slice(0, ITEMS).map((item) => value(item, depth - 1));
    return members(one, depth);
  };
  const members = (of: object, depth: number): JsonObject => {
    return Object.fromEntries(
      Object.entries(of)
        .slice(0, ITEMS)
        // What was thrown may be any value: its members are not told.
        .map(([name, one]) => [text(name), value(THROWN.test(name) ? one && String(one) : one, depth - 1)]),
    );
  };
  const write =
    (level: keyof Logger) =>
    (message: string, detail?: JsonObject): void =>
      logger[level](text(message), detail && members(detail, DEPTH));
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

/** A stranger's text for a log or a terminal: escaped, and cut. */
export function shortText(text: string, most: number): string {
  return escaped(text.slice(0, most));
}

/** What may move a cursor, break a line in some viewer of logs (line ends of Unicode), or turn what follows round. */
const UNSAFE = /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Escapes those characters. */
export function escaped(text: string): string {
  return text.replace(UNSAFE, (unsafe) => `\\u${unsafe.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** When it expires, and 122 random bits. */
const ID = /[0-9a-z]{7,11}\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** @param label the name of a call in the log */
export function withoutIds(logger: Logger, label: (id: string) => string): Logger {
  return rewritten(logger, (text) => text.replace(ID, label));
}
