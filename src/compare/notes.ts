/** What every report says about itself. */

export const UNSEEN =
  'Effects that cannot be seen: native add-ons (drivers of SQLite), worker threads, HTTP/2, copied functions of node:fs, code outside of the async context of its call, private fields, globals; of a command, all.';

/** What a generated scenario leaves out, in a sentence. */
export function notCalled(uncalled: readonly string[]): string[] {
  if (uncalled.length === 0) return [];
  return [`Not called, since not marked readOnlyHint: ${uncalled.join(', ')}.`];
}
