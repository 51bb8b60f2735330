/** What is logged of other packages' errors may hold a store's URL, and that its password. */
import type { JsonObject } from '../call/json.ts';
import type { Logger } from '../options.ts';

const CREDENTIALS = /(\/\/)[^\s/@]+@/g;

export function withoutPasswords(logger: Logger): Logger {
  const write =
    (level: keyof Logger) =>
    (message: string, detail?: JsonObject): void =>
      logger[level](redact(message), detail && redactIn(detail));
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

function redactIn(detail: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(detail).map(([name, value]) => [name, typeof value === 'string' ? redact(value) : value]),
  );
}

function redact(text: string): string {
  return text.replace(CREDENTIALS, '$1***@');
}
