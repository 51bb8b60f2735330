/** A line on stderr for each event: for people on a terminal, JSON elsewhere. */
import type { JsonObject } from '../base/values.ts';
import type { Logger } from '../observe/logger.ts';
import { choice } from './values.ts';

/** Bytes of log lines that wait in memory for stderr's reader; the logger drops further lines. */
const MOST_WAITING = 4_194_304;

const LEVELS = ['error', 'warn', 'info', 'debug'] as const;

type Level = (typeof LEVELS)[number];

/** The part of a stream that is used here. */
interface Output {
  readonly isTTY?: boolean;
  /** Bytes that wait to be read. */
  readonly writableLength?: number;
  write(text: string): unknown;
}

/** @throws AwaitError `bad-option` for a level that does not exist */
export function levelLogger(least: string, output: Output = process.stderr): Logger {
  const upTo = LEVELS.indexOf(choice('log', least, LEVELS));
  let dropped = 0;
  const write = (level: Level, message: string, detail: JsonObject): void => {
    output.write(`${lineOf(new Date(), level, message, detail, output.isTTY === true)}\n`);
  };
  const at = (level: Level) => {
    if (LEVELS.indexOf(level) > upTo) return () => {};
    return (message: string, detail: JsonObject = {}): void => {
      if ((output.writableLength ?? 0) > MOST_WAITING) {
        dropped += 1;
        return;
      }
      if (dropped > 0) write('warn', 'lines of the log were dropped', { dropped });
      dropped = 0;
      write(level, message, detail);
    };
  };
  return { error: at('error'), warn: at('warn'), info: at('info'), debug: at('debug') };
}

/** A line of the log, without its end. */
export function lineOf(
  time: Date,
  level: Level,
  message: string,
  detail: JsonObject,
  isTerminal: boolean,
): string {
  if (!isTerminal) return JSON.stringify({ time: time.toISOString(), level, message, ...detail });
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()];
  const fields = Object.entries(detail).map(([name, value]) => {
    // A word as it is, anything else as JSON.
    const isWord = typeof value === 'string' && /^[^\s"=]+$/.test(value);
    return `${name}=${isWord ? value : (JSON.stringify(value) ?? '')}`;
  });
  const head = `${clock.map((part) => String(part).padStart(2, '0')).join(':')} ${level.padEnd(5)} ${message}`;
  return fields.length === 0 ? head : `${head}  ${fields.join(' ')}`;
}
