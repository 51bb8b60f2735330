/** Values of the command line: numbers, times, sizes and names, and the message for an invalid one. */
import { readFileSync } from 'node:fs';
import { optionError } from '../base/values.ts';

/** In milliseconds. */
const TIMES: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** In bytes. */
const SIZES: Readonly<Record<string, number>> = { KiB: 1_024, MiB: 1_048_576, GiB: 1_073_741_824 };

/** @throws AwaitError `bad-option` */
export function whole(flag: string, value: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
  const number = Number(value);
  if (value.trim() !== '' && Number.isInteger(number) && number >= least && number <= most) return number;
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  return fail(flag, value, `must be a whole number ${range}`);
}

/**
 * A time such as `500`, `500ms`, `30s`, `5m`, `2h` or `90d`.
 * @returns milliseconds
 */
export function duration(flag: string, value: string): number {
  return scaled(value, TIMES) ?? fail(flag, value, 'must be a time such as 500ms, 30s, 5m, 2h or 90d');
}

/** A number, a time in milliseconds, or a size in bytes: `1MiB`. */
export function amount(flag: string, value: string): number {
  return (
    scaled(value, { ...TIMES, ...SIZES }) ??
    fail(flag, value, 'must be a number, a time (30s) or a size (1MiB)')
  );
}

/** @throws AwaitError `bad-option` for a value that is not in the list */
export function choice<T extends string>(flag: string, value: string, values: readonly T[]): T {
  return values.find((one) => one === value) ?? fail(flag, value, `must be ${values.join(' or ')}`);
}

/** `NAME=VALUE`, taken apart. */
export function named(flag: string, value: string): readonly [string, string] {
  const at = value.indexOf('=');
  if (at < 1 || at === value.length - 1) fail(flag, value, 'must be NAME=VALUE');
  return [value.slice(0, at), value.slice(at + 1)];
}

function scaled(value: string, units: Readonly<Record<string, number>>): number | undefined {
  const [, number, unit] = /^(\d{1,15}(?:\.\d{1,6})?)([A-Za-z]{0,3})$/.exec(value) ?? [];
  if (number === undefined || unit === undefined) return undefined;
  const factor = unit === '' ? 1 : Object.hasOwn(units, unit) ? units[unit] : undefined;
  return factor && Number(number) * factor;
}

function fail(flag: string, value: string, what: string): never {
  throw optionError(`--${flag} ${value} ${what}`);
}

/** The text of the file that a flag names. */
export function readText(flag: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw optionError(`--${flag} ${path} cannot be read: ${String(error)}`, error);
  }
}
