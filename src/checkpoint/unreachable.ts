/** The error of a store or a relay that cannot be reached when a process starts: where it is, and why. */
import { AwaitError, reasonOf } from '../base/values.ts';

/** How long the first attempt may take, in milliseconds: an operator reads the cause within five seconds. */
export const FIRST = 4_000;

const PORTS: Readonly<Record<string, string>> = {
  'redis:': '6379',
  'rediss:': '6379',
  'postgres:': '5432',
  'postgresql:': '5432',
  'nats:': '4222',
  'tls:': '4222',
};

/**
 * @param what `store` or `relay`
 * @param url only its host and port, or its file, are in the message: there may be a password in it
 */
export function unreachable(what: string, url: string, error: unknown): AwaitError {
  const scheme = url.slice(0, url.indexOf(':'));
  // An `@` after the host: the password has a `/`, `?` or `#` in it, and its beginning is read as the host's port.
  const [beforeQuery = ''] = url.slice(url.indexOf('://') + 3).split('=', 1);
  const at = beforeQuery.indexOf('@');
  if (at >= 0 && /[/?#]/.test(beforeQuery.slice(0, at))) {
    const text = `the password in the URL of the ${scheme} ${what} must be percent-encoded`;
    return new AwaitError('store', text);
  }
  return new AwaitError(
    'store',
    `the ${scheme} ${what} at ${placeOf(url)} cannot be reached: ${causeOf(error)}`,
    error,
  );
}

/** The file of a SQLite store; empty or `:memory:` if it has none. */
export function sqliteFile(url: string): string {
  return url.replace(/^sqlite:(?:\/\/)?/, '');
}

function placeOf(url: string): string {
  if (url.startsWith('sqlite:')) return sqliteFile(url);
  if (!URL.canParse(url)) return 'a URL that is malformed, or names several hosts,';
  const { protocol, hostname, port } = new URL(url);
  return `${hostname || 'localhost'}:${port || PORTS[protocol]}`;
}

/** Node reports a name with several addresses, of which none answers, as an error without a message. */
function causeOf(error: unknown): string {
  if (error instanceof AwaitError && error.cause !== undefined) return causeOf(error.cause);
  if (error instanceof AggregateError) return error.errors.map(causeOf).join(', ');
  return reasonOf(error);
}
