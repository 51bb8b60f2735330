/** A session's state, as several requests of one process read and append to it at once. */
import { describe, expect, it } from 'vitest';
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
      get: async (name: string) => {
        await tick();
        return kept.get(name);
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
});
