/**
 * Replays a call that has ended through another instance of its server, to repeat its changes there (a tool that it
 * registered, a list that it changed). It runs without a client and without a journal: recorded answers and steps are
 * given again, and new effects do not happen.
 */
import { AwaitError, deferred, defined } from '../../base/values.ts';
import { Frame } from '../frame/frame.ts';
import type { FrameOptions } from '../frame/turn.ts';
import type { Checkpoint } from '../journal/entries.ts';
import type { OpenJournal } from '../journal/store.ts';
import type { Instance } from './request-context.ts';

export interface Rehearsal {
  /** The replaying frame; the instance's notifications in it are dropped. */
  readonly frame: Frame;
  /** Resolves with the error that ended it; undefined if the tool finished. */
  readonly done: Promise<AwaitError | undefined>;
}

/** @param wait how long the tool may take, in milliseconds */
export function rehearse(
  checkpoint: Checkpoint,
  instance: Instance,
  options: FrameOptions,
  wait: number,
): Rehearsal {
  const { call, completions, drawn } = checkpoint;
  const from = { completions, open: [], asked: 0, turn: 0, fresh: 0, ...defined({ drawn }) };
  const frame = new Frame(call, OVER, { ...options, warn: () => {} }, from);
  const { promise: done, resolve } = deferred<AwaitError | undefined>();
  frame.enter({
    live: true,
    missing: () => undefined,
    unfit: () => undefined,
    given: () => undefined,
    asksAgain: () => false,
    ask: () => {},
    withdraw: () => {},
    notify: () => {},
    isInterim: () => false,
    end: (ending) => {
      // At once, so that nothing unrecorded begins.
      frame.drop();
      resolve(ending.kind === 'broken' ? ending.error : undefined);
    },
  });
  const { method, params, requestId } = call;
  instance.call(frame, { method, params, id: requestId }, { isRehearsal: true });
  const tooLong = (): void => resolve(new AwaitError('limit', `call ${call.id} takes more than ${wait} ms`));
  const timer = options.clock.after(wait, tooLong).unref();
  const over = (): void => {
    timer.cancel();
    frame.drop();
  };
  return { frame, done: done.finally(over) };
}

/** Nothing is appended to it: a step that is not recorded does not begin, an ask does not go out. */
const OVER: OpenJournal = {
  position: 0,
  lapsed: true,
  onReceived: () => {},
  append: () => Promise.reject(new AwaitError('fenced', 'this call has ended')),
  decide: () => Promise.reject(new AwaitError('fenced', 'this call has ended')),
  readOn: async () => undefined,
  beat: () => Promise.resolve(),
};
