/** A session's state, as several requests of one process read and append to it at once. */
import { describe, expect, it, vi } from 'vitest';
import { SessionState } from '../../compat/session/state.ts';

describe('the state of a session', () => {
  it('that a process appends is not led through its own instance again', async () => {
    const kept = new Map<string, unknown>();
    const tick = () => new Promise<void>((resolve) => setImmediate(resolve));
    const store = {
      isShared: true,
      insert: async (name: string, value: unknown) => {
        await tick();
        if (kept.has(name)) return false;
        kept.set(name, value);
        await tick();
        await tick();
        return true;
      },
      getAll: async (names: readonly string[]) => {
        await tick();
        return names.map((name) => kept.get(name));
      },
    };
    const stateOf = () => new SessionState({ store } as never, 'session', { id: 'session', expires: 1 });
    const instanceOf = (led: unknown[]) =>
      ({
        request: async ({ params }: { params: { level: number } }) => void led.push(params.level),
      }) as never;
    const [here, there] = [stateOf(), stateOf()];
    const led: [unknown[], unknown[]] = [[], []];
    const [home, other] = [instanceOf(led[0]), instanceOf(led[1])];
    const all = [0, 1, 2, 3, 4, 5, 6, 7].map(async (level) => {
      const [state, instance] = level % 2 === 0 ? [here, home] : [there, other];
      await state.record(instance, 'logging/setLevel', { level });
      await state.catchUp(instance);
    });
    const looks = Array.from({ length: 20 }, async (_, nth) => {
      for (let more = 0; more < nth; more += 1) await tick();
      await here.catchUp(home);
    });
    await Promise.all([...all, ...looks]);
    await Promise.all([here.catchUp(home), there.catchUp(other)]);
    expect(kept.size).toBe(8);
    expect(led.map((levels) => levels.sort())).toEqual([
      [1, 3, 5, 7],
      [0, 2, 4, 6],
    ]);
  });

  const ROOTS = 'notifications/roots/list_changed';

  /** A state whose store has records already, and what it did of it. */
  function counted(records: readonly object[]) {
    const kept = new Map<string, object>(records.map((record, nth) => [`session:state:${nth + 1}`, record]));
    const operations: string[] = [];
    const requests: { method: string; params: unknown }[] = [];
    const notified: string[] = [];
    const store = {
      isShared: true,
      insert: async (name: string, value: object) => {
        operations.push('insert');
        if (kept.has(name)) return false;
        kept.set(name, value);
        return true;
      },
      get: async (name: string) => {
        operations.push('get');
        return kept.get(name);
      },
      getAll: async (names: readonly string[]) => {
        operations.push('getAll');
        return names.map((name) => kept.get(name));
      },
    };
    const state = new SessionState({ store } as never, 'session', { id: 'session', expires: 1 });
    const instance = {
      request: async (request: { method: string; params: unknown }) => void requests.push(request),
      notify: ({ method }: { method: string }) => void notified.push(method),
    } as never;
    return { kept, operations, requests, notified, state, instance };
  }

  it('finds the end of its records in few reads where this process has no instance', async () => {
    const { kept, operations, state } = counted(new Array(5_000).fill({ method: ROOTS }));
    await state.notified(undefined, ROOTS);
    expect(kept.size).toBe(5_001);
    expect(operations.length).toBeLessThan(50);
    expect(operations.filter((operation) => operation === 'insert')).toHaveLength(1);
    operations.length = 0;
    await state.notified(undefined, ROOTS);
    expect(operations).toEqual(['get', 'insert']);
    expect(state.records).toHaveLength(5_002);
  });

  it.each([true, false])(
    'is stored behind a record that cannot be read (with an instance: %s)',
    async (has) => {
      const { kept, state, instance } = counted([{ method: ROOTS }, [] as object, { method: ROOTS }]);
      await state.notified(has ? instance : undefined, ROOTS);
      expect(kept.size).toBe(4);
      expect(state.records).toHaveLength(4);
    },
  );

  it('stores one notification for all that came before it was begun', async () => {
    const { kept, state } = counted([]);
    await Promise.all(Array.from({ length: 100 }, () => state.notified(undefined, ROOTS)));
    expect(kept.size).toBe(1);
    await state.notified(undefined, ROOTS);
    expect(kept.size).toBe(2);
  });

  it('is read many records at a time, and of those that overwrite each other applies the last', async () => {
    const subscribed = { method: 'resources/subscribe', params: { uri: 'a' } };
    const changes = Array.from({ length: 5_000 }, (_, level) => [
      { method: 'logging/setLevel', params: { level } },
      { method: ROOTS },
      subscribed,
      { method: 'resources/unsubscribe', params: { uri: 'b' } },
    ]).flat();
    const { operations, requests, notified, state, instance } = counted(changes.slice(0, 9_999));
    expect(await state.subscribes('a')).toBe(true);
    expect(operations.length).toBeLessThan(200);
    operations.length = 0;
    await state.catchUp(instance);
    expect(operations.length).toBeLessThan(200);
    expect(notified).toEqual([ROOTS]);
    expect(requests.map(({ method, params }) => ({ method, params }))).toEqual([
      { method: 'logging/setLevel', params: { level: 2_499 } },
      subscribed,
      { method: 'resources/unsubscribe', params: { uri: 'b' } },
    ]);
    expect(await state.subscribes('a')).toBe(true);
    expect(await state.subscribes('b')).toBe(false);
  });

  it('has room for some thousands of subscriptions, and goes through none of them for one more', () => {
    const state = new SessionState({} as never, 'session', { id: 'session', expires: 1 });
    const subscribe = (nth: number) => {
      const params = { uri: String.fromCharCode(nth) };
      state.check({ method: 'resources/subscribe', params } as never);
      void state.record({} as never, 'resources/subscribe', params);
    };
    const walked = vi.spyOn(Set.prototype, Symbol.iterator);
    for (let nth = 1; nth <= 3_000; nth += 1) subscribe(nth);
    const walks = walked.mock.calls.length;
    walked.mockRestore();
    expect(walks).toBe(0);
    expect(() => {
      for (let nth = 3_001; nth <= 5_000; nth += 1) subscribe(nth);
    }).toThrow('too long');
    // One that is there already takes no room, and one that goes leaves it.
    subscribe(1);
    void state.record({} as never, 'resources/unsubscribe', { uri: String.fromCharCode(1) });
    subscribe(0);
  });
});
