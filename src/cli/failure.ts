/** How the command line reports an error: a short text, and an exit code. */
import { AwaitError } from '../base/values.ts';

/** Lines of a stack that say nothing about the user's files: Node's, and those of this package and of loaders. */
const INSIDE = /\bnode:|[\\/]mcp-await[\\/]dist[\\/]|[\\/]node_modules[\\/](?:tsx|esbuild)[\\/]/;
const OWN = new URL('..', import.meta.url).href;

/** The text for stderr, without the program's name. */
export function failureText(error: unknown): string {
  const failure = AwaitError.from(error);
  const { cause } = failure;
  if (failure.code !== 'internal' || !(cause instanceof Error)) return failure.message;
  // A system call that failed names its file or its address.
  return 'syscall' in cause ? cause.message : userStack(cause);
}

/** An error's message, and where in the user's files it was thrown. */
export function userStack(error: Error): string {
  const { message, stack = '' } = error;
  // What the user's TypeScript has wrong is in the message, with its line.
  if (error.name === 'TransformError') return message;
  const isInside = (line: string): boolean =>
    /^ {4}at /.test(line) && (INSIDE.test(line) || line.includes(OWN));
  const lines = stack.split('\n').filter((line) => !isInside(line));
  return lines.join('\n') || message;
}
