/** `mcp-await serve`: a module's server. */
import { AwaitError } from '../base/values.ts';
import { readArguments } from './arguments.ts';
import { serveHost } from './listen.ts';
import { loadFactory } from './load.ts';

export async function serve(args: readonly string[]): Promise<void> {
  const draft = await readArguments(args);
  const [path] = draft.positionals;
  if (path === undefined || draft.positionals.length > 1) {
    throw new AwaitError('bad-option', 'serve takes one module, such as: mcp-await serve ./server.ts');
  }
  await serveHost(draft, 'warn', () => loadFactory(path));
}
