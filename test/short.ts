/** What `npm test` leaves to `npm run test:all`: by how long it takes, not by how much it matters. */
import process from 'node:process';

/** Whether this is `npm test`; vitest.config.ts says so. */
export const SHORT: boolean = process.env.MCP_AWAIT_SHORT_TESTS === '1';

/** The rows of a matrix to run: all of them, or the first of those that can run here. */
export function some<T>(rows: readonly T[], first = 1): readonly T[] {
  if (!SHORT) return rows;
  const able = rows.filter((row) => (row as { readonly down?: boolean }).down !== true);
  return (able.length === 0 ? rows : able).slice(0, first);
}
