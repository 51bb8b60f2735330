/** A line on stderr for each event: for people on a terminal, JSON elsewhere. */
import { type JsonObject, optionError, systemClock } from '../base/values.ts';
import type { Logger } from '../observe/logger.ts';

/** Bytes of lines that wait for a reader of the log; beyond that, lines are dropped. */
const MOST_WAITING = 4_194_304;
/** Warnings and errors of one message that are written in a second: strangers may cause as many as they send requests. */
const MOST_ALIKE = 50;

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
  const upTo = (LEVELS as readonly string[]).indexOf(least);
  if (upTo < 0) throw optionError(`--log ${least} must be one of ${LEVELS.join(', ')}`);
  const alike = new Map<string, number>();
  let [second, dropped] = [0, 0];
  const isTooMuch = (level: Level, message: string): boolean => {
    if ((output.writableLength ?? 0) > MOST_WAITING) return true;
    if (level === 'info' || level === 'debug') return false;
    const now = Math.floor(systemClock.elapsed() / 1_000);
    if (now > second) alike.clear();
    second = now;
    const count = (alike.get(message) ?? 0) + 1;
    alike.set(message, count);
    return count > MOST_ALIKE;
  };
  const write = (level: Level, message: string, detail: JsonObject): void => {
    output.write(`${lineOf(new Date(), level, message, detail, output.isTTY === true)}\n`);
  };
  const at = (level: Level) => {
    if (LEVELS.indexOf(level) > upTo) return () => {};
    return (message: string, detail: JsonObject = {}): void => {
      if (isTooMuch(level, message)) {
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
  const fields = Object.entries(detail).map(([name, value]) => `${name}=${fieldOf(value)}`);
  const head = `${clock.map((part) => String(part).padStart(2, '0')).join(':')} ${level.padEnd(5)} ${message}`;
  return fields.length === 0 ? head : `${head}  ${fields.join(' ')}`;
}

/** A word as it is, anything else as JSON. */
function fieldOf(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : (JSON.stringify(value) ?? '');
}
