/** A client's progress on an ask: its tool hears of it, and it begins the ask's time anew. */
import { expect, it } from 'vitest';
import { type Clock, type JsonObject, systemClock } from '../../src/base/values.ts';
import type { AskProgress } from '../../src/call/frame/turn.ts';
import {
  accept,
  BINDING,
  beginResumable,
  listening,
  MemoryStore,
  requestContextOf,
  until,
  workbench,
} from './bench.ts';

interface HandClock extends Clock {
  pass(milliseconds: number): void;
}

/** Time that passes when the test says so; the event loop runs as always. */
function handClock(): HandClock {
  let now = 1_000_000;
  let timers: { readonly at: number; readonly fn: () => void }[] = [];
  return {
    now: () => now,
    elapsed: () => now,
    soon: systemClock.soon,
    after: (milliseconds, fn) => {
      const entry = { at: now + milliseconds, fn };
      timers.push(entry);
      const timer = {
        cancel: () => {
          timers = timers.filter((other) => other !== entry);
        },
        unref: () => timer,
      };
      return timer;
    },
    pass(milliseconds) {
      now += milliseconds;
      const due = timers.filter(({ at }) => at <= now);
      timers = timers.filter(({ at }) => at > now);
      for (const { fn } of due) fn();
    },
  };
}

const PARAMS = { mode: 'form', message: 'name?', requestedSchema: { type: 'object', properties: {} } };
const ERROR = /^Error: /;

/** A call whose tool asks once. */
function asking(options: Pick<AskProgress, 'resets' | 'total'> & { timeout: number }) {
  const { timeout, ...rest } = options;
  const clock = handClock();
  const reports: JsonObject[] = [];
  const progress: AskProgress = { report: (params) => void reports.push(params), ...rest };
  const { engine } = workbench(
    async ({ ask }) => {
      try {
        return (await ask('elicitation/create', PARAMS, { timeout, progress })).action;
      } catch (error) {
        return String(error);
      }
    },
    { clock, frame: { clock } },
  );
  const { context, asked } = listening();
  const started = engine.start(
    {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client: { capabilities: context.capabilities, info: {}, protocolVersion: '2025-11-25' },
      binding: BINDING,
    },
    context,
  );
  const outcomeOf = async (): Promise<unknown> => {
    const outcome = await started.outcome;
    if (outcome.kind !== 'responded' || !('result' in outcome.response)) throw new Error(outcome.kind);
    return outcome.response.result.value;
  };
  const isAsked = async (): Promise<string> => {
    await until(() => asked.length === 1);
    return asked[0]?.key ?? '';
  };
  return { clock, reports, started, outcomeOf, isAsked, asked };
}

it('begins the time of an ask anew, as often as its client reports', async () => {
  const { clock, reports, started, outcomeOf, isAsked, asked } = asking({ timeout: 1_000, resets: true });
  const key = await isAsked();
  for (let progress = 1; progress <= 5; progress += 1) {
    clock.pass(900);
    expect(started.report(key, { progress })).toBe(true);
  }
  expect(reports.map(({ progress }) => progress)).toEqual([1, 2, 3, 4, 5]);
  const [ask] = asked;
  if (ask === undefined) throw new Error('not asked');
  await started.answer(key, { result: accept(ask) });
  expect(await outcomeOf()).toBe('accept');
  expect(started.report(key, { progress: 6 })).toBe(false);
});

it('ends an ask whose client reports nothing more', async () => {
  const { clock, started, outcomeOf, isAsked } = asking({ timeout: 1_000, resets: true });
  const key = await isAsked();
  clock.pass(900);
  started.report(key, { progress: 1 });
  clock.pass(1_000);
  expect(await outcomeOf()).toMatch(ERROR);
  expect(await outcomeOf()).toContain('Request timed out');
});

it('keeps the time of an ask whose tool only listens', async () => {
  const { clock, reports, started, outcomeOf, isAsked } = asking({ timeout: 1_000, resets: false });
  const key = await isAsked();
  clock.pass(900);
  started.report(key, { progress: 1 });
  clock.pass(100);
  expect(await outcomeOf()).toContain('Request timed out');
  expect(reports).toHaveLength(1);
});

it('ends an ask at its first report after the time for all of it', async () => {
  const { clock, reports, started, outcomeOf, isAsked } = asking({
    timeout: 1_000,
    resets: true,
    total: 1_500,
  });
  const key = await isAsked();
  clock.pass(900);
  started.report(key, { progress: 1 });
  clock.pass(900);
  started.report(key, { progress: 2 });
  expect(await outcomeOf()).toContain('Maximum total timeout exceeded');
  expect(reports).toHaveLength(1);
});

it('reaches the process that runs the call, in its order and before the answer', async () => {
  const store = new MemoryStore();
  const reports: JsonObject[] = [];
  const progress: AskProgress = { report: (params) => void reports.push(params), resets: false };
  const tool = workbench(async ({ ask }) => (await ask('elicitation/create', PARAMS, { progress })).action, {
    store,
  });
  const other = workbench(async () => {}, { store });
  const { context, asked } = listening();
  const { callId, outcome } = beginResumable(tool.engine, { ...requestContextOf(), ...context });
  await until(() => asked.length === 1);
  const [ask] = asked;
  if (ask === undefined) throw new Error('not asked');
  for (const nth of [1, 2, 3]) {
    expect(await other.engine.report(callId, { principal: undefined }, ask.key, { progress: nth })).toBe(
      true,
    );
  }
  expect(await other.engine.report(callId, { principal: 'somebody else' }, ask.key, { progress: 4 })).toBe(
    false,
  );
  expect(await other.engine.report(callId, { principal: undefined }, 'another-key', { progress: 4 })).toBe(
    false,
  );
  await other.engine.deliver(callId, { principal: undefined }, ask.key, { result: accept(ask) });
  await outcome;
  expect(reports.map(({ progress: nth }) => nth)).toEqual([1, 2, 3]);
});
