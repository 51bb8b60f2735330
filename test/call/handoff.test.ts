/** Live first, handoff second, replay last (and what happens when messages are lost). */
import { afterEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/values.ts';
import type { Relay } from '../../src/call/ports.ts';
import { memoryRelay } from '../../src/relay/memory.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { gate } from '../fixtures/gate.ts';
import {
  answers,
  BINDING,
  errorOf,
  MemoryStore,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  workbench,
} from './bench.ts';

/** A relay that loses messages of the given kinds. */
function lossy(relay: Relay, lost: ReadonlySet<unknown>): Relay {
  return {
    ...relay,
    send: async (name, message) =>
      lost.has((JSON.parse(message) as JsonObject).type) ? true : relay.send(name, message),
  };
}

/** Counts how often the tool is begun: a handoff does not run it again. */
function counting() {
  const seen = { begun: 0, charged: [] as string[] };
  const tool: Tool = async ({ elicit, step, notify }) => {
    seen.begun += 1;
    const one = await elicit('one');
    notify('between');
    const charged = await step('charge', ({ idempotencyKey }) => seen.charged.push(idempotencyKey));
    const two = await elicit('two');
    notify('after');
    return [one.content, charged, two.content];
  };
  return { seen, tool };
}

const LIMITS = { lease: 150, turnWait: 3_000, handoffWait: 100 };

function two(tool: Tool, lost: ReadonlySet<unknown> = new Set(), extra: object = {}) {
  const store = new MemoryStore();
  const relay = lossy(memoryRelay(), lost);
  const make = () => workbench(tool, { store, relay, limits: LIMITS, ...extra });
  return { store, relay, owner: make(), other: make() };
}

const listening = () => new Promise((resolve) => setTimeout(resolve, 5));
let heard: string[] = [];
afterEach(() => {
  heard = [];
});

describe('a call whose frame is parked elsewhere', () => {
  it('continues there: nothing of the tool runs again, and its client hears what it says', async () => {
    const { seen, tool } = counting();
    const { owner, other } = two(tool);
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const context = requestContextOf({ heard });
    const second = suspended(await other.engine.resume(first.token, BINDING, answers(first), context));
    const done = await other.engine.resume(second.token, BINDING, answers(second), context);
    expect(resultOf(done)).toEqual([{ a: 're: one' }, 1, { a: 're: two' }]);
    expect(seen.begun).toBe(1);
    expect(heard).toEqual(['between', 'after']);
    expect([owner.counts.opened, other.counts.opened]).toEqual([1, 0]);
  });

  it('also when tokens carry it and no store is there', async () => {
    const { seen, tool } = counting();
    const relay = memoryRelay();
    const [owner, other] = [0, 1].map(() => workbench(tool, { relay, carry: true, limits: LIMITS })) as [
      ReturnType<typeof workbench>,
      ReturnType<typeof workbench>,
    ];
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const second = suspended(
      await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    resultOf(await other.engine.resume(second.token, BINDING, answers(second), requestContextOf()));
    expect(seen.begun).toBe(1);
  });

  it('continues there although it may not be run again', async () => {
    const { tool } = counting();
    const { owner, other } = two(tool, new Set(), { parts: { replay: () => 'never' } });
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const second = suspended(
      await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    expect(second.asks[0]?.params.message).toBe('two');
  });

  it('is replayed when that process is gone, dropped the frame, or never accepts', async () => {
    for (const lost of [[], ['offer'], ['accepted', 'ended']]) {
      const { seen, tool } = counting();
      const { owner, other } = two(tool, new Set(lost));
      await listening();
      const first = suspended(await start(owner.engine, requestContextOf()));
      if (lost.length === 0) await owner.engine.close();
      const second = suspended(
        await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
      );
      const done = await other.engine.resume(second.token, BINDING, answers(second), requestContextOf());
      expect(resultOf(done)).toEqual([{ a: 're: one' }, 1, { a: 're: two' }]);
      expect(seen.charged).toHaveLength(1);
    }
  });

  it('has its outcome from the journal when the message about it is lost', async () => {
    const { seen, tool } = counting();
    const { owner, other } = two(tool, new Set(['ended']));
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const second = suspended(
      await other.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    resultOf(await other.engine.resume(second.token, BINDING, answers(second), requestContextOf()));
    expect(seen).toMatchObject({ begun: 1 });
  });

  it('is taken over when that process dies after it accepted', async () => {
    const begun: string[] = [];
    let hang = true;
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('done', () => begun.push('done'));
      if (hang) await new Promise(() => {});
      return 'finished';
    };
    const store = new MemoryStore();
    const relay = memoryRelay();
    const owner = workbench(tool, { store: store.muted(), relay, limits: LIMITS });
    const other = workbench(tool, { store, relay, limits: LIMITS });
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const resumed = other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    while (begun.length === 0) await listening();
    hang = false;
    expect(resultOf(await resumed)).toBe('finished');
    expect(begun).toEqual(['done']);
  });

  it('is left there when its client disconnects, and its next request continues after the last completed step', async () => {
    const gone = new AbortController();
    const ran: string[] = [];
    const work = gate();
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('slow', async () => {
        ran.push('slow');
        await work.opened;
      });
      await step('next', () => ran.push('next'));
      return 'finished';
    };
    const { owner, other } = two(tool);
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const resumed = other.engine.resume(
      first.token,
      BINDING,
      answers(first),
      requestContextOf({ signal: gone.signal }),
    );
    while (ran.length === 0) await listening();
    gone.abort();
    expect((await resumed).kind).toBe('gone');
    await listening();
    work.open();
    expect(ran).toEqual(['slow']);
    expect(
      resultOf(await other.engine.resume(first.token, BINDING, answers(first), requestContextOf())),
    ).toBe('finished');
    expect(ran).toEqual(['slow', 'next']);
  });

  it('is one turn for two clients of two processes, and other answers are refused', async () => {
    const { seen, tool } = counting();
    const { owner, other } = two(tool);
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const same = await Promise.all(
      [other, owner, other].map(({ engine }) =>
        engine.resume(first.token, BINDING, answers(first), requestContextOf()).then(suspended),
      ),
    );
    expect(new Set(same.map(({ asks }) => asks[0]?.key)).size).toBe(1);
    expect(seen).toMatchObject({ begun: 1, charged: [expect.anything()] });
    const changed = answers(first, () => ({ action: 'decline' }));
    const refused = await other.engine.resume(first.token, BINDING, changed, requestContextOf());
    expect(errorOf(refused)).toEqual(BAD_TOKEN);
  });
});

describe('a message of the relay', () => {
  it('that arrives twice, or for an unknown offer, changes nothing', async () => {
    const { seen, tool } = counting();
    const base = memoryRelay();
    const relay: Relay = {
      ...base,
      send: async (name, message) => {
        await base.send(name, message);
        await base.send(name, '{"type":"offer"}');
        await base.send(name, 'no json');
        return base.send(name, message);
      },
    };
    const store = new MemoryStore();
    const [owner, other] = [0, 1].map(() => workbench(tool, { store, relay, limits: LIMITS })) as [
      ReturnType<typeof workbench>,
      ReturnType<typeof workbench>,
    ];
    await listening();
    const first = suspended(await start(owner.engine, requestContextOf()));
    const context = requestContextOf({ heard });
    const second = suspended(await other.engine.resume(first.token, BINDING, answers(first), context));
    resultOf(await other.engine.resume(second.token, BINDING, answers(second), context));
    expect(seen.begun).toBe(1);
    expect(heard).toEqual(['between', 'after']);
  });
});

describe('a process that shuts down', () => {
  it('lets what is running end, serves what comes meanwhile, and refuses what comes after', async () => {
    let finish: (() => void) | undefined;
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      return step(
        'slow',
        () =>
          new Promise<string>((resolve) => {
            finish = () => resolve('done');
          }),
      );
    };
    const { owner } = two(tool);
    const first = suspended(await start(owner.engine, requestContextOf()));
    const resumed = owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    while (finish === undefined) await listening();
    const closed = owner.engine.close();
    const again = owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    finish();
    await closed;
    expect(resultOf(await resumed)).toBe('done');
    expect(resultOf(await again)).toBe('done');
    const late = await owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(errorOf(late).message).toContain('shutting down; send the same request again');
  });

  it('gives up what does not end, and another process continues at once', async () => {
    const ran: string[] = [];
    let hang = true;
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('done', () => ran.push('done'));
      if (hang) await new Promise(() => {});
      return 'finished';
    };
    // With a lease of ten minutes it must be the entry in the journal that lets the other one in.
    const limits = { ...LIMITS, drain: 30, lease: 600_000 };
    const { owner, other } = two(tool, new Set(), { limits });
    const first = suspended(await start(owner.engine, requestContextOf()));
    const resumed = owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    while (ran.length === 0) await listening();
    await owner.engine.close();
    hang = false;
    expect(errorOf(await resumed).message).toContain('send the same request again');
    expect(
      resultOf(await other.engine.resume(first.token, BINDING, answers(first), requestContextOf())),
    ).toBe('finished');
    expect(ran).toEqual(['done']);
  });
});

describe('a turn whose owner is gone and that may not be run again', () => {
  it('ends with an error that names what was done, for everybody who asks', async () => {
    const tool: Tool = async ({ elicit, step }) => {
      await elicit('one');
      await step('charge', () => 'receipt');
      await new Promise(() => {});
    };
    const store = new MemoryStore();
    const owner = workbench(tool, { store: store.muted(), limits: LIMITS });
    const other = workbench(tool, { store, limits: LIMITS, parts: { replay: () => 'never' } });
    const first = suspended(await start(owner.engine, requestContextOf()));
    void owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await listening();
    for (let twice = 0; twice < 2; twice += 1) {
      const ended = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
      expect(errorOf(ended).message).toMatch(/could not be continued.*Completed steps: charge$/);
    }
    expect(store.types().at(-1)).toBe('ended');
  });
});

describe('messages that nobody of this service sent', () => {
  it('are one line of the log a minute', async () => {
    const relay = memoryRelay();
    const { engine, log } = workbench(async () => 'done', {
      store: new MemoryStore(),
      relay,
      limits: LIMITS,
    });
    await listening();
    for (let nth = 0; nth < 100; nth += 1) await relay.send(engine.name ?? '', `junk ${nth}`);
    await listening();
    expect(log.filter(({ message }) => message === 'a message of the relay is refused')).toHaveLength(1);
  });
});
