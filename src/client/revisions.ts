/** The revisions that this client speaks beside those of its SDK, one row each. */
import { defined, optionError } from '../base/values.ts';
import type { ClientLink } from './link.ts';
import { ModernLink } from './modern/link.ts';
import { MRTR_DRAFT } from './round-trips/mrtr-draft.ts';
import { SEP_2322 } from './round-trips/sep-2322.ts';
import { SessionLink, type SessionOptions } from './session/link.ts';

/** What each revision's link is made of. */
interface LinkOptions extends Omit<SessionOptions, 'revision' | 'dialect' | 'task'> {
  readonly tasks: false | { readonly ttl?: number } | undefined;
}

interface SpokenRevision {
  /** Whether it has sessions: a client may bring one along, and resume its streams. */
  readonly hasSessions: boolean;
  readonly open: (options: LinkOptions) => ClientLink;
}

function session(revision: string, dialect?: SessionOptions['dialect']): SpokenRevision {
  return {
    hasSessions: true,
    open: ({ tasks, ...options }) => {
      const task = tasks === false ? undefined : tasks;
      return new SessionLink({ ...options, revision, task, ...defined({ dialect }) });
    },
  };
}

const modern: SpokenRevision['open'] = ({ tasks, ...options }) =>
  new ModernLink({ ...options, tasks: tasks !== false });

const REVISIONS = {
  '2026-07-28': { hasSessions: false, open: modern },
  'DRAFT-SEP-2322': session('DRAFT-SEP-2322', SEP_2322),
  'DRAFT-MRTR-2026-02': session('DRAFT-MRTR-2026-02', MRTR_DRAFT),
  'DRAFT-SEP-1858': session('DRAFT-SEP-1858'),
} as const satisfies Record<string, SpokenRevision>;

/** What this transport speaks beside the revisions that the SDK speaks itself. */
export type ClientRevision = keyof typeof REVISIONS;

/** @throws AwaitError `bad-option` for another name */
export function rowOf(revision: ClientRevision): SpokenRevision {
  if (Object.hasOwn(REVISIONS, revision)) return REVISIONS[revision];
  throw optionError(`revision '${revision}' is not one of: ${Object.keys(REVISIONS).join(', ')}.`);
}
