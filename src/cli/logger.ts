/** One line of JSON on stderr for each event. */
import process from 'node:process';
import { AwaitError } from '../base/error.ts';
import type { JsonObject } from '../base/json.ts';
import type { Logger } from '../observe/logger.ts';

const LEVELS = ['error', 'warn', 'info', 'debug'] as const;

/** @throws AwaitError `bad-option` for a level that does not exist */
export function levelLogger(least: string): Logger {
  const upTo = (LEVELS as readonly string[]).indexOf(least);
  if (upTo < 0) throw new AwaitError('bad-option', `--log ${least} must be one of ${LEVELS.join(', ')}`);
  const at = (level: (typeof LEVELS)[number]) => {
    if (LEVELS.indexOf(level) > upTo) return () => {};
    return (message: string, detail: JsonObject = {}): void => {
      process.stderr.write(
        `${JSON.stringify({ time: new Date().toISOString(), level, message, ...detail })}\n`,
      );
    };
  };
  return { error: at('error'), warn: at('warn'), info: at('info'), debug: at('debug') };
}
