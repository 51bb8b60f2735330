/** The option `audit`: reports each act on a call with its caller, without any content. */
import type { CallRecord, Entry } from '../call/journal/entries.ts';
import { shortText } from './redact.ts';

export interface AuditEvent {
  /** Milliseconds since the epoch. */
  readonly time: number;
  /**
   * `called`: a request came that may ask; later events have its call once it is durable. `asked`: an ask went to its
   * caller; `answered`: the call got the answer; `stepped`: a step of its tool is done; `detached`: it continues as a task;
   * `cancelled`, `completed`, `failed`: it has ended. `forgotten`: it was erased (`handler.forget`). `given`: of a call
   * that waits for a person, the answer came that counts.
   */
  readonly what:
    | 'called'
    | 'asked'
    | 'answered'
    | 'stepped'
    | 'detached'
    | 'cancelled'
    | 'completed'
    | 'failed'
    | 'forgotten'
    | 'given';
  /** The call's label, as the log and `mcp-await calls` have it; its id does not follow from it. */
  readonly call: string;
  /** The caller's stable name; absent for an anonymous one. */
  readonly caller?: string;
  readonly revision: string;
  readonly method: string;
  /** The tool, the prompt, or the resource's URI without its query; cut after 200 characters. */
  readonly target: string;
  /** Of `given`: the person who answered, `''` where the client did for them, and by which way. */
  readonly person?: string;
  readonly route?: 'page' | 'client';
  /** Of `given`: digests of what was asked, and of the call's arguments. */
  readonly question?: string;
  readonly arguments?: string;
}

export type Audit = (event: AuditEvent) => void;

/** The event of a journal entry; undefined for entries that only the engine needs. */
export function auditedAs(entry: Entry): AuditEvent['what'] | undefined {
  switch (entry.type) {
    case 'asked':
    case 'suspended':
      return 'asked';
    case 'claimed':
      return entry.answers.length > 0 ? 'answered' : undefined;
    case 'completed':
      return entry.completion.kind === 'answer' ? 'answered' : 'stepped';
    case 'detached':
    case 'cancelled':
      return entry.type;
    case 'ended':
      return 'error' in entry.response ? 'failed' : 'completed';
    default:
      return undefined;
  }
}

/** Longest target, in characters. */
const MOST = 200;

export function auditEvent(
  what: AuditEvent['what'],
  label: string,
  call: CallRecord,
  time: number,
): AuditEvent {
  const { principal, revision, method, params } = call;
  const { name, uri } = params;
  return {
    time,
    what,
    call: label,
    ...(principal !== undefined && { caller: principal }),
    revision,
    method,
    target: shortText(String(name ?? String(uri ?? '').split(/[?#]/, 1)[0]), MOST),
  };
}
