/** Calls that continue as tasks: how they become tasks, crashes, and access by other callers. */
import { describe, expect, it, vi } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import { type Gate, gate } from '../fixtures/gate.ts';
import {
  accept,
  answers,
  BINDING,
  errorOf,
  MemoryStore,
  pause,
  suspended,
  type Tool,
  until,
  wrapped,
} from './bench.ts';
import {
  accepted,
  begin,
  isAsking,
  isOver,
  LEASE,
  processOf,
  resultIn,
  serve,
  sweep,
  taskLeg,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

/** Two asks and two steps, whose effects are counted. */
function order() {
  const effects: string[] = [];
  const tool: Tool = async ({ elicit, step }) => {
    await step('charge', () => effects.push('charge'));
    const one = await elicit('one');
    await step('ship', () => effects.push('ship'));
    const two = await elicit('two');
    return [one.content, two.content];
  };
  return { effects, tool };
}
/** The positions that are read from now on, of whichever call. */
function readsOf(store: MemoryStore): number[] {
  const reads: number[] = [];
  const { read } = store;
  store.read = (callId, position) => {
    reads.push(position);
    return read.call(store, callId, position);
  };
  return reads;
}
const DONE = [{ a: 're: one' }, { a: 're: two' }];

describe('a task', () => {
  for (const when of ['now', 'after-asks'] as const) {
    for (const side of ['before', 'after'] as const) {
      it(`comes to its result wherever its owner dies ${side} writing (${when})`, async () => {
        for (let crash = 0; crash < 12; crash += 1) {
          const store = new MemoryStore(LEASE);
          const { effects, tool } = order();
          const owner = processOf(tool, store);
          const other = processOf(tool, store);
          let count = 0;
          owner.store[side] = () => {
            if (count === crash) owner.die();
            count += 1;
            if (side === 'before' && count > crash) throw new Error('it died');
          };
          const outcome = begin(owner, wish({ when })).outcome;
          await pause(5);
          const id = [...store.entries.keys()][0]?.split(':')[0];
          // Its client never got the task, and no step ran.
          if (id === undefined || !(await other.engine.tasks?.progress(id))) {
            expect(effects.length).toBeLessThan(2);
            continue;
          }
          const isTask = store.types().some((type) => type === 'detached') || when === 'now';
          if (!isTask) continue;
          const served = serve(other, id);
          for (;;) {
            await pause(10);
            if (count > crash || store.types().includes('ended')) break;
          }
          if (count > crash) await sweep(other, id);
          expect([crash, resultIn(await served)]).toEqual([crash, DONE]);
          const asked = [...store.entries.values()].flatMap((text) => {
            const entry = JSON.parse(text) as Entry;
            return entry.type === 'asked' ? [entry.ask.key] : [];
          });
          // A step whose completion was not written is the one that may be done again.
          const steps = new Set(effects);
          expect([...steps].sort()).toEqual(['charge', 'ship']);
          expect(effects.length - steps.size).toBeLessThanOrEqual(1);
          expect(new Set(asked).size).toBe(asked.length);
          void outcome;
        }
      });
    }
  }

  it('that has ended is kept nowhere but in the store: asking for it reads its log', async () => {
    const store = new MemoryStore(LEASE);
    const { tool } = order();
    const owner = processOf(tool, store);
    const other = processOf(tool, store);
    const id = taskOf(await begin(owner, wish()).outcome);
    expect(resultIn(await serve(owner, id))).toEqual(DONE);
    const ended = await view(owner, id);
    expect(await view(other, id)).toEqual(ended);
    const reads = readsOf(store);
    for (const process of [owner, other]) {
      for (let nth = 0; nth < 3; nth += 1) {
        expect(await view(process, id)).toEqual(ended);
        expect(reads.splice(0)).toEqual(Array.from({ length: store.entries.size }, (_, at) => at));
      }
      expect(await process.engine.tasks?.progress(id)).toBeUndefined();
      expect(await process.engine.tasks?.cancel(id, undefined)).toBe(false);
      reads.splice(0);
    }
    store.entries.clear();
    await expect(view(owner, id)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('that was cancelled, or had suspended before, is read again as it was', async () => {
    const store = new MemoryStore(LEASE);
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('slow', () => new Promise(() => {}));
      return 'done';
    };
    const owner = processOf(tool, store);
    const first = suspended(await begin(owner, wish({ when: 'after-asks' })).outcome);
    const id = taskOf(await owner.engine.resume(first.token, BINDING, answers(first), taskLeg()));
    expect(await owner.engine.tasks?.cancel(id, undefined)).toBe(true);
    const other = processOf(tool, store);
    const ended = await viewed(other, id, isOver);
    expect(ended).toMatchObject({ status: 'cancelled', call: { id, params: { name: 'tool' } } });
    expect(await view(other, id)).toEqual(ended);
  });

  it('that is large is not kept beside others that are', async () => {
    const store = new MemoryStore(LEASE);
    const wide = { limits: { journalBytes: 30_000_000 } };
    const tool: Tool = async ({ elicit, step }) => {
      await step('load', () => 'x'.repeat(9_000_000));
      return (await elicit('one')).content;
    };
    const owner = processOf(tool, store, wide);
    const other = processOf(tool, store, wide);
    const ids = [taskOf(await begin(owner, wish()).outcome), taskOf(await begin(owner, wish()).outcome)];
    for (const id of ids) await viewed(other, id, isAsking);
    const reads = readsOf(store);
    const [first = '', second = ''] = ids;
    await view(other, second);
    // Only the position after the last one.
    expect(reads.splice(0)).toEqual([3]);
    await view(other, first);
    expect(reads.splice(0)).toEqual([0, 1, 2, 3]);
    await view(other, second);
    expect(reads.splice(0)).toEqual([0, 1, 2, 3]);
  });

  /** A task that another process saw wait, and whose log is then deleted. */
  async function seenAndDeleted() {
    const store = new MemoryStore(LEASE);
    const tool: Tool = async ({ elicit }) => (await elicit('one')).content;
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(other, id, isAsking);
    // It was answered elsewhere, and its records made room: six leases after its end.
    store.entries.clear();
    return { store, other, id };
  }

  it('is unknown to who saw it wait, once its log is deleted', async () => {
    const { other, id } = await seenAndDeleted();
    await pause(6 * LEASE);
    await expect(view(other, id)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('is unknown also to who asked for it all the time, while the store could not be read', async () => {
    const { store, other, id } = await seenAndDeleted();
    const readOn = vi.spyOn(store, 'readOn').mockImplementation(() => {
      throw new AwaitError('store', 'away');
    });
    for (let nth = 0; nth < 7; nth += 1) {
      await expect(view(other, id)).rejects.toMatchObject({ code: 'store' });
      await pause(LEASE);
    }
    readOn.mockRestore();
    await expect(view(other, id)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('is taken over by one of many that saw its owner silent', async () => {
    const store = new MemoryStore(LEASE);
    let begun = 0;
    const tool: Tool = async ({ step }) => {
      await step('slow', async () => {
        begun += 1;
        if (begun > 1) await pause(30);
        else await new Promise(() => {});
      });
      return 'done';
    };
    const owner = processOf(tool, store);
    const id = taskOf(await begin(owner, wish()).outcome);
    await until(() => begun === 1);
    owner.die();
    const others = Array.from({ length: 5 }, () => processOf(tool, store));
    const [watcher] = others;
    if (watcher === undefined) throw new Error('nobody');
    await Promise.all(others.map((other) => sweep(other, id)));
    expect(resultIn((await viewed(watcher, id, isOver)).response)).toBe('done');
    expect(begun).toBe(2);
    expect(store.types().filter((type) => type === 'claimed')).toHaveLength(1);
  });

  it('is left to an owner that moved since it was seen to be silent', async () => {
    const store = new MemoryStore(LEASE);
    const { effects, tool } = order();
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    const seen = await viewed(owner, id, isAsking);
    const found = await other.engine.tasks?.progress(id);
    await update(owner, id, accepted(seen.asks));
    await viewed(owner, id, (task) => isAsking(task) && task.asks[0]?.key !== seen.asks[0]?.key);
    if (found !== undefined) await other.engine.takeUpTask(found.call, found.at);
    expect(store.types()).not.toContain('claimed');
    expect(resultIn(await serve(other, id))).toEqual(DONE);
    expect(effects).toHaveLength(2);
  });

  it('is given up at a shutdown once its running step is recorded, and continues elsewhere at once', async () => {
    const store = new MemoryStore(LEASE);
    const effects: string[] = [];
    const finishers: (() => void)[] = [];
    const tool: Tool = async ({ step, elicit }) => {
      await step('slow', async () => {
        effects.push('slow');
        await new Promise<void>((resolve) => finishers.push(resolve));
      });
      return (await elicit('one')).content;
    };
    const [owner, other] = [processOf(tool, store, { limits: { drain: 60 } }), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await until(() => effects.length === 1);
    const closed = owner.engine.close();
    await pause(80);
    expect(store.types()).not.toContain('left');
    finishers[0]?.();
    await closed;
    expect(store.types()).toEqual(['called', 'completed', 'left']);
    expect((await other.engine.tasks?.progress(id))?.left).toBe(true);
    await sweep(other, id);
    expect(resultIn(await serve(other, id))).toEqual({ a: 're: one' });
    expect(effects).toEqual(['slow']);
  });

  it('whose owner slept and lost it, is neither answered, nor kept alive, nor gone on with there', async () => {
    const store = new MemoryStore(LEASE);
    const { effects, tool } = order();
    const [owner, other, third] = [processOf(tool, store), processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    const { asks } = await viewed(other, id, isAsking);
    owner.sleep();
    await pause(LEASE);
    await sweep(other, id);
    owner.wake();
    const beats = new Set<string>();
    Object.assign(owner.store, { beat: async (_: unknown, sign: string) => void beats.add(sign) });
    await update(owner, id, accepted(asks));
    await viewed(third, id, (task) => isAsking(task) && task.asks[0]?.key !== asks[0]?.key);
    await until(() => !owner.engine.tasks?.runs(id));
    beats.clear();
    await pause(LEASE);
    expect([...beats]).toEqual([]);
    expect(resultIn(await serve(owner, id))).toEqual(DONE);
    expect(effects).toEqual(['charge', 'ship']);
  });

  it('is not kept from the others by an owner that lost it, lives, and waits', async () => {
    const store = new MemoryStore(LEASE);
    const { tool } = order();
    const [former, owner, other] = [processOf(tool, store), processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(former, wish()).outcome);
    await viewed(former, id, isAsking);
    await sweep(owner, id);
    await pause(LEASE);
    owner.die();
    await pause(LEASE);
    const sign = store.beats.get(id);
    await pause(2 * LEASE);
    expect(store.beats.get(id)).toBe(sign);
    await sweep(other, id);
    expect(resultIn(await serve(other, id))).toEqual(DONE);
  });

  it('whose owner slept and lost it, can be cancelled there', async () => {
    const store = new MemoryStore(LEASE);
    const { tool } = order();
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(other, id, isAsking);
    owner.sleep();
    await sweep(other, id);
    owner.wake();
    expect(await owner.engine.tasks?.cancel(id, undefined)).toBe(true);
    for (const process of [owner, other]) expect((await view(process, id)).status).toBe('cancelled');
    await until(() => !other.engine.tasks?.runs(id));
  });

  it('starts no step where its owner slept for long, before it is sure of it', async () => {
    const store = new MemoryStore(LEASE);
    const effects: string[] = [];
    const begun: Gate[] = [];
    const tool: Tool = async ({ step }) => {
      const work = gate();
      begun.push(work);
      await work.opened;
      await step('charge', () => effects.push('charge'));
      return 'done';
    };
    const owner = processOf(tool, store);
    const id = taskOf(await begin(owner, wish()).outcome);
    const other = processOf(tool, store);
    await until(() => begun.length === 1);
    owner.sleep();
    await pause(LEASE);
    await sweep(other, id);
    begun[0]?.open();
    await pause(5);
    owner.wake();
    await pause(20);
    expect(effects).toEqual([]);
    await until(() => begun.length === 2);
    begun[1]?.open();
    expect(resultIn((await viewed(other, id, isOver)).response)).toBe('done');
    expect(effects).toEqual(['charge']);
  });

  it('is waited for also while the store is away for longer than a request waits', async () => {
    const store = new MemoryStore(LEASE);
    const { tool } = order();
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(other, id, isAsking);
    const { readOn } = other.store;
    let failures = 0;
    other.store.readOn = async function* (...args) {
      failures += 1;
      if (failures > 1 && failures < 6) throw new AwaitError('store', 'it is away');
      yield* readOn.apply(other.store, args);
    };
    const over = other.engine.tasks?.until(id, undefined, isOver);
    await pause(100);
    expect((await serve(owner, id)) !== undefined).toBe(true);
    expect((await over)?.response).toBeDefined();
    expect(failures).toBeGreaterThan(4);
  });

  it('ends where it runs when it expires', async () => {
    const store = new MemoryStore(LEASE);
    let signal: AbortSignal | undefined;
    const tool: Tool = async ({ cancelled }) => {
      signal = cancelled;
      await new Promise(() => {});
    };
    const owner = processOf(tool, store, { parts: { ttl: 50 } });
    const id = taskOf(await begin(owner, wish()).outcome);
    await until(() => signal?.aborted === true);
    await expect(view(owner, id)).rejects.toMatchObject({ code: 'bad-token' });
    expect(await sweep(processOf(tool, store), id)).toBeUndefined();
    expect(owner.engine.tasks?.runs(id)).toBe(false);
  });
});

describe('a call on its way to be a task', () => {
  /** A store in which writing `detached` waits until it is let through. */
  function slowDetach() {
    const store = new MemoryStore(LEASE);
    let letThrough = (): void => {};
    const gate = new Promise<void>((resolve) => {
      letThrough = resolve;
    });
    let waiting = false;
    const slow: MemoryStore = Object.create(store, {
      open: {
        writable: true,
        value: (...args: Parameters<MemoryStore['open']>) => {
          const journal = store.open(...args);
          let last: Promise<unknown> = Promise.resolve();
          return wrapped(journal, {
            write: (run, make) => {
              const written = last.then(async () => {
                if (make()?.type === 'detached') {
                  waiting = true;
                  await gate;
                }
                return run();
              });
              last = written.catch(() => {});
              return written;
            },
          });
        },
      },
    });
    return { store, slow, letThrough: () => letThrough(), isWaiting: () => waiting };
  }

  /** As `processOf`, with a journal whose `detached` is slow. */
  function slowProcess(tool: Tool, holdsServers = false) {
    const { store, slow, letThrough, isWaiting } = slowDetach();
    const owner = processOf(tool, store, { store: slow, parts: { holdsServers } });
    return { store, owner, letThrough, isWaiting };
  }

  it('is a task even where its tool ends while that is written, and is not run again', async () => {
    const work = gate();
    const tool: Tool = async () => {
      await work.opened;
      return 'done';
    };
    const { store, owner, letThrough, isWaiting } = slowProcess(tool);
    const { outcome } = begin(owner, wish({ when: 'late', after: 5 }));
    await until(isWaiting);
    work.open();
    await pause(5);
    letThrough();
    const id = taskOf(await outcome);
    expect(resultIn((await viewed(owner, id, isOver)).response)).toBe('done');
    expect(store.types()).toEqual(['called', 'detached', 'ended']);
    expect(owner.engine.tasks?.runs(id)).toBe(false);
    expect(owner.counts.released).toBe(1);
  });

  it('is over when its client disconnects while that is written', async () => {
    const tool: Tool = () => new Promise(() => {});
    const { store, owner, letThrough, isWaiting } = slowProcess(tool);
    const gone = new AbortController();
    const { outcome } = begin(owner, wish({ when: 'late', after: 5 }), taskLeg({ signal: gone.signal }));
    await until(isWaiting);
    gone.abort();
    letThrough();
    expect((await outcome).kind).toBe('gone');
    await until(() => store.types().includes('cancelled'));
    const id = [...store.entries.keys()][0]?.split(':')[0] ?? '';
    expect((await view(owner, id)).status).toBe('cancelled');
    expect(await sweep(processOf(tool, store), id)).toBeUndefined();
  });

  it('continues as one when the client of a later turn goes away while that is written', async () => {
    const work = gate();
    const tool: Tool = async ({ elicit }) => {
      await elicit('one');
      await work.opened;
      return 'done';
    };
    const { store, owner, letThrough, isWaiting } = slowProcess(tool);
    const late = wish({ when: 'late', after: 5 });
    const first = suspended(await begin(owner, late, taskLeg({ takesTasks: false })).outcome);
    const gone = new AbortController();
    const turn = owner.engine.resume(first.token, BINDING, answers(first), taskLeg({ signal: gone.signal }));
    await until(isWaiting);
    gone.abort();
    letThrough();
    expect((await turn).kind).toBe('gone');
    const again = await owner.engine.resume(first.token, BINDING, answers(first), taskLeg());
    const id = taskOf(again);
    work.open();
    expect(resultIn((await viewed(owner, id, isOver)).response)).toBe('done');
    expect(store.types()).toEqual(['suspended', 'claimed', 'detached', 'ended']);
  });

  it.each([
    ['', false],
    [', behind a link', true],
  ])(
    'is given up for others when its process shuts down while that is written%s',
    async (_where, isLinked) => {
      let begun = 0;
      const tool: Tool = async ({ elicit }) => {
        begun += 1;
        if (begun === 1) await new Promise(() => {});
        return (await elicit('one')).content;
      };
      const { store, owner, letThrough, isWaiting } = slowProcess(tool, isLinked);
      const { outcome } = begin(owner, wish({ when: 'late', after: 5 }));
      await until(isWaiting);
      const closed = owner.engine.close();
      await pause(110);
      letThrough();
      await closed;
      const id = taskOf(await outcome);
      const other = processOf(tool, store);
      expect((await other.engine.tasks?.progress(id))?.left).toBe(true);
      await sweep(other, id);
      expect(resultIn(await serve(other, id))).toEqual({ a: 're: one' });
    },
  );

  it('gives the same task to the same request while and after it becomes one, and none to another', async () => {
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('charge', () => 1);
      return (await elicit('two')).content;
    };
    const { store, owner, letThrough, isWaiting } = slowProcess(tool);
    const other = processOf(tool, store);
    const first = suspended(await begin(owner, wish({ when: 'after-asks' })).outcome);
    const given = answers(first);
    const turn = owner.engine.resume(first.token, BINDING, given, taskLeg());
    await until(isWaiting);
    const twins = [owner, owner, other].map(({ engine }) =>
      engine.resume(first.token, BINDING, given, taskLeg()),
    );
    letThrough();
    const id = taskOf(await turn);
    for (const twin of twins) expect(taskOf(await twin)).toBe(id);
    for (const { engine } of [owner, other]) {
      expect(taskOf(await engine.resume(first.token, BINDING, given, taskLeg()))).toBe(id);
      const others = answers(first, (ask) => accept(ask, { a: 'something else' }));
      const refused = await engine.resume(first.token, BINDING, others, taskLeg());
      expect(errorOf(refused).message).toBe('Invalid or expired requestState');
    }
    expect(resultIn(await serve(other, id))).toEqual({ a: 're: two' });
  });

  for (const side of ['before', 'after'] as const) {
    for (const type of ['detached', 'ended'] as const) {
      it(`has the same result where the store fails ${side} writing '${type}'`, async () => {
        const store = new MemoryStore(LEASE);
        const { effects, tool } = order();
        const owner = processOf(tool, store);
        const other = processOf(tool, store);
        let failed = 0;
        owner.store[side] = (entry) => {
          if (entry.type !== type || failed > 0) return;
          failed += 1;
          throw new Error('the store is down');
        };
        const first = await begin(owner, wish({ when: 'late', rounds: 2 })).outcome;
        const asked = suspended(first);
        let outcome = await owner.engine.resume(asked.token, BINDING, answers(asked), taskLeg());
        if (outcome.kind === 'responded') {
          expect(errorOf(outcome).message).toContain('send the same request again');
          outcome = await owner.engine.resume(asked.token, BINDING, answers(asked), taskLeg());
        }
        const id = taskOf(outcome);
        const served = serve(other, id);
        // The sweeper takes this task over.
        const isDone = served.then(() => true);
        for (let tries = 0; tries < 20; tries += 1) {
          if (await Promise.race([isDone, pause(LEASE / 2).then(() => false)])) break;
          if (!owner.engine.tasks?.runs(id) && !other.engine.tasks?.runs(id)) await sweep(other, id);
        }
        expect(resultIn(await served)).toEqual(DONE);
        expect(effects).toEqual(['charge', 'ship']);
      });
    }
  }

  it('that is to be one in any case leaves nothing behind where that cannot be written', async () => {
    const store = new MemoryStore(LEASE);
    const owner = processOf(async () => 'done', store);
    owner.store.before = () => {
      throw new Error('the store is down');
    };
    for (const task of [wish({ when: 'late', always: true }), wish()]) {
      errorOf(await begin(owner, task).outcome);
    }
    expect(owner.counts.released).toBe(owner.counts.opened);
  });

  it('names a question that is asked again once, under the key that is good', async () => {
    const store = new MemoryStore(LEASE);
    const required = { a: { type: 'string' }, required: [] };
    const tool: Tool = async ({ ask, step }) => {
      const schema = (name: string) => ({ type: 'object', properties: required, required: [name] });
      const elicit = (message: string) =>
        ask('elicitation/create', { mode: 'form', message, requestedSchema: schema('a') });
      const both = await Promise.all([
        elicit('one').then((one) => step('charge', () => 1).then(() => one)),
        elicit('two'),
      ]);
      return both.map(({ content }) => content as object) as never;
    };
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const first = suspended(await begin(owner, wish({ when: 'after-asks' })).outcome);
    const [one, two] = first.asks;
    if (one === undefined || two === undefined) throw new Error('not asked');
    const given = { [one.key]: accept(one), [two.key]: { action: 'accept', content: {} } };
    const id = taskOf(await owner.engine.resume(first.token, BINDING, given, taskLeg()));
    const seen = await viewed(other, id, isAsking);
    expect(seen.asks.map(({ key }) => key)).not.toContain(two.key);
    expect(seen.asks).toHaveLength(1);
    await update(other, id, accepted(seen.asks));
    owner.die();
    await sweep(other, id);
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual([
      { a: 're: one' },
      { a: 're: two' },
    ]);
  });
});

describe('what is said of a task', () => {
  it('is one answer, of two that come in at once at two processes', async () => {
    for (let round = 0; round < 20; round += 1) {
      const store = new MemoryStore(LEASE);
      const tool: Tool = async ({ elicit }) => {
        const one = await elicit('one');
        return [one.content, (await elicit('two')).content];
      };
      const [owner, other, third] = [processOf(tool, store), processOf(tool, store), processOf(tool, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      const { asks } = await viewed(owner, id, isAsking);
      const [ask] = asks;
      if (ask === undefined) throw new Error('not asked');
      const say = (a: string) => ({ [ask.key]: accept(ask, { a }) });
      const sides = [
        () => update(owner, id, say('here')),
        () => update(other, id, say('there')),
        () => update(third, id, say('elsewhere')),
      ];
      await Promise.all((round % 2 === 0 ? sides : sides.reverse()).map((side) => side()));
      const next = await viewed(third, id, (task) => isAsking(task) && task.asks[0]?.key !== ask.key);
      expect(next.asks).toHaveLength(1);
      owner.die();
      await sweep(other, id);
      const [one] = resultIn(await serve(other, id)) as [{ a: string }];
      const told = [...store.entries.values()].filter((text) => text.includes(`"key":"${ask.key}","method"`));
      expect(told.filter((text) => text.includes('"completed"'))).toHaveLength(1);
      expect(told.join()).toContain(`"a":"${one.a}"`);
    }
  });

  it('is the answer that was written, where the store said that it was not', async () => {
    const store = new MemoryStore(LEASE);
    const told: unknown[] = [];
    const tool: Tool = async ({ elicit }) => {
      const { content } = await elicit('one');
      told.push(content);
      await elicit('two');
      return content;
    };
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    let failed = false;
    owner.store.after = (entry) => {
      if (entry.type !== 'completed' || failed) return;
      failed = true;
      throw new Error('the store is down');
    };
    const id = taskOf(await begin(owner, wish()).outcome);
    const [ask] = (await viewed(owner, id, isAsking)).asks;
    if (ask === undefined) throw new Error('not asked');
    const answer = (a: string) =>
      owner.engine.deliver(id, { principal: undefined }, ask.key, { result: accept(ask, { a }) });
    await expect(answer('first')).rejects.toThrow('down');
    await answer('second');
    await until(() => told.length === 1);
    owner.die();
    await sweep(other, id);
    await until(() => told.length === 2);
    expect(told[1]).toEqual(told[0]);
  });

  it('is one thing at a time: its status is that of what is told beside it', async () => {
    const store = new MemoryStore(LEASE);
    const { tool } = order();
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(owner, id, isAsking);
    let letThrough = (): void => {};
    const gate = new Promise<void>((resolve) => {
      letThrough = resolve;
    });
    Object.assign(other.store, { delivered: () => gate.then(() => undefined) });
    const early = view(other, id);
    await pause();
    expect(await serve(owner, id)).toBeDefined();
    const late = await view(other, id);
    letThrough();
    expect(late.status).toBe('completed');
    const seen = await early;
    expect([seen.status, seen.response]).toEqual(['input_required', undefined]);
  });

  it('is no ask that its tool gave up', async () => {
    const store = new MemoryStore(LEASE);
    const work = gate();
    const tool: Tool = async ({ ask }) => {
      const gaveUp = new AbortController();
      const params = { mode: 'form', message: 'one', requestedSchema: { type: 'object', properties: {} } };
      void ask('elicitation/create', params, { signal: gaveUp.signal });
      await pause(20);
      gaveUp.abort();
      await work.opened;
      return 'done';
    };
    const [owner, other] = [processOf(tool, store), processOf(tool, store)];
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(other, id, isAsking);
    await viewed(other, id, (task) => task.status === 'working');
    work.open();
    expect(resultIn((await viewed(other, id, isOver)).response)).toBe('done');
  });
});

describe('a cancelled task', () => {
  it('stays so for all, and its running step is recorded no more, whichever process is told', async () => {
    for (const isElsewhere of [false, true]) {
      const store = new MemoryStore(LEASE);
      let signal: AbortSignal | undefined;
      let finish = (): void => {};
      let after = 0;
      const tool: Tool = async ({ step, cancelled }) => {
        signal = cancelled;
        await step('slow', () => new Promise<void>((resolve) => (finish = resolve)));
        after += 1;
      };
      const [owner, other] = [processOf(tool, store), processOf(tool, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      await pause(5);
      expect(await (isElsewhere ? other : owner).engine.tasks?.cancel(id, undefined)).toBe(true);
      finish();
      await until(() => signal?.aborted === true);
      await pause(10);
      expect(store.types()).toEqual(['called', 'cancelled']);
      for (const process of [owner, other]) {
        expect((await view(process, id)).status).toBe('cancelled');
        expect(await process.engine.tasks?.cancel(id, undefined)).toBe(false);
        expect(await sweep(process, id)).toBeUndefined();
      }
      expect(after).toBe(0);
    }
  });

  it('against its end, an answer and other cancels comes to one thing for all', async () => {
    for (let round = 0; round < 30; round += 1) {
      const store = new MemoryStore(LEASE);
      const tool: Tool = async ({ elicit }) => (await elicit('one')).content;
      const all = [processOf(tool, store), processOf(tool, store), processOf(tool, store)] as const;
      const [owner, other, third] = all;
      const id = taskOf(await begin(owner, wish()).outcome);
      const { asks } = await viewed(owner, id, isAsking);
      const wait = () => pause(round % 3);
      const results = await Promise.all([
        wait().then(() => owner.engine.tasks?.cancel(id, undefined)),
        other.engine.tasks?.cancel(id, undefined),
        wait().then(() => owner.engine.tasks?.cancel(id, undefined)),
        update(round % 2 === 0 ? owner : third, id, accepted(asks)).catch((error: unknown) => {
          expect(error).toMatchObject({ code: 'bad-token' });
        }),
      ]);
      const seen = await Promise.all(all.map((process) => viewed(process, id, isOver)));
      expect(new Set(seen.map(({ status }) => status)).size).toBe(1);
      const cancelled = results.filter((result) => result === true).length;
      expect(cancelled).toBe(seen[0]?.status === 'cancelled' ? 1 : 0);
      expect(store.types().filter((type) => type === 'cancelled' || type === 'ended')).toHaveLength(1);
      await until(() => !owner.engine.tasks?.runs(id));
    }
  });

  it('is cancelled once the store takes it, where that failed before', async () => {
    for (const side of ['before', 'after'] as const) {
      const store = new MemoryStore(LEASE);
      const { tool } = order();
      const [owner, other] = [processOf(tool, store), processOf(tool, store)];
      const id = taskOf(await begin(owner, wish()).outcome);
      await viewed(owner, id, isAsking);
      let failed = false;
      owner.store[side] = (entry) => {
        if (entry.type !== 'cancelled' || failed) return;
        failed = true;
        throw new Error('the store is down');
      };
      await expect(owner.engine.tasks?.cancel(id, undefined)).rejects.toThrow('down');
      await owner.engine.tasks?.cancel(id, undefined);
      for (const process of [owner, other]) expect((await view(process, id)).status).toBe('cancelled');
    }
  });
});
