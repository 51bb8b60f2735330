/** The newest revision of each of the two ways in which a call that asks continues. */
import { NAMES, type Revision, TABLE } from '../../compat/revisions.ts';

/** With sessions: its asks are live, and servers show most of their features there. */
export const NEWEST_LIVE = NAMES.findLast((name) => {
  const row = TABLE.get(name);
  return row?.negotiatedBy === 'initialize' && row.asks === 'live';
}) as Revision;

/** Without sessions: every answer is a new request. */
export function newestModern(revisions: readonly Revision[] = NAMES): Revision | undefined {
  return revisions.findLast((name) => TABLE.get(name)?.era === 'modern');
}
