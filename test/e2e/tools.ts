/** The tools of the asking server (test/fixtures), one for each way to ask. */

/** Each tool, its result, and its asks. */
export const TOOLS: readonly (readonly [string, string, readonly string[]])[] = [
  ['one', 'Hello its name', ['name?']],
  ['in-turn', 'its name, its city, its street', ['name?', 'city?', 'street?']],
  ['at-once', 'its name, its city, its street', ['name?', 'city?', 'street?']],
  ['by-extra', 'Hello its name', ['name?']],
  ['link', 'link: accept', ['open it']],
  ['sample', 'a poem', ['sampling']],
  ['sample-by-extra', 'test', ['sampling']],
  ['roots', 'file:///home/ann', ['roots']],
  ['roots-by-extra', 'file:///home/ann', ['roots']],
];
