/** Where this package's log lines go. */
import type { JsonObject } from '../base/values.ts';

/** The option `logger`. Default: warnings and errors to stderr. */
export interface Logger {
  debug(message: string, detail?: JsonObject): void;
  info(message: string, detail?: JsonObject): void;
  warn(message: string, detail?: JsonObject): void;
  error(message: string, detail?: JsonObject): void;
}

/** Writes warnings and errors to stderr, one line each, and leaves the rest out. */
export const consoleLogger: Logger = {
  debug: () => {},
  info: () => {},
  warn: (message, detail) => write('warn', message, detail),
  error: (message, detail) => write('error', message, detail),
};

function write(level: string, message: string, detail: JsonObject | undefined): void {
  // Unlike a write to stderr, it does not end the process where nobody reads that any more.
  console.error(`mcp-await ${level}: ${message}${detail === undefined ? '' : ` ${JSON.stringify(detail)}`}`);
}
