/** What every report says about itself. */

export const UNSEEN =
  'Effects that cannot be seen: those of native add-ons (drivers of SQLite), worker threads, HTTP/2, functions of node:fs that were copied before, code that lost the async context of its call, and variables that hold no number, text or collection, private fields and globals; of a command, all.';

/** What a generated scenario leaves out, in a sentence. */
export function notCalled(uncalled: readonly string[]): string[] {
  if (uncalled.length === 0) return [];
  const tools = uncalled.join(', ');
  return [
    `Not called, since not marked readOnlyHint: ${tools}. Call them with --call-all, or with a scenario.`,
  ];
}
