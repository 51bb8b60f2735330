/** A process asks a relay for the messages to its name. The relay agrees, fails or never answers, or there is no relay. */
import { describe, expect, it, vi } from 'vitest';
import { type Relay, RelayListener } from '../../src/call/ports.ts';
import { ENDING } from '../../src/call/run/relay.ts';

const relay = (listen: Relay['listen']): Relay => ({
  listen,
  send: () => Promise.resolve(false),
  close: () => Promise.resolve(),
});
const turn = (): Promise<void> => new Promise((go) => setImmediate(go));

describe('a process that listens on a relay', () => {
  it.each([
    ['is reached until it closes', async (stop: () => Promise<void>) => stop],
    // A relay of the user's own.
    ['is reached also where nothing ends it', async () => undefined as never],
  ])('%s', async (_what, listen) => {
    let stopped = 0;
    const stop = async (): Promise<void> => {
      stopped += 1;
    };
    const listener = new RelayListener(
      relay(() => listen(stop)),
      'a',
      () => {},
      () => expect.unreachable(),
    );
    expect(listener.isOn).toBe(false);
    await turn();
    expect(listener.isOn).toBe(true);
    await listener.close();
    await listener.close();
    expect(listener.isOn).toBe(false);
    expect(stopped).toBeLessThan(2);
  });

  it('is not reached while that fails, says why once, and asks again until it closes', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    try {
      const failed: unknown[] = [];
      const asked: string[] = [];
      let isDown = true;
      const down = relay(async (name) => {
        asked.push(name);
        if (isDown) throw new Error('down');
        return async () => {};
      });
      const listen = (name: string): RelayListener =>
        new RelayListener(
          down,
          name,
          () => {},
          (_message, { error }) => failed.push(String(error)),
        );
      const [first, closed] = [listen('a'), listen('b')];
      await Promise.all([first.asked, closed.asked]);
      await vi.advanceTimersByTimeAsync(60_000);
      expect([first.isOn, failed]).toEqual([false, ['Error: down', 'Error: down']]);
      expect(asked.length).toBeGreaterThan(2);
      await closed.close();
      isDown = false;
      await vi.advanceTimersByTimeAsync(60_000);
      expect([first.isOn, closed.isOn, asked.at(-1)]).toEqual([true, false, 'a']);
      await first.close();
      expect(first.isOn).toBe(false);
    } finally {
      vi.useRealTimers();
    }
  });

  it.each([
    ['never ends', () => new Promise<void>(() => {})],
    ['fails as it ends', () => Promise.reject(new Error('gone'))],
    [
      'throws as it ends',
      (): never => {
        throw new Error('gone');
      },
    ],
  ])('closes in time where the relay %s', async (_what, stop) => {
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    try {
      const listener = new RelayListener(
        relay(async () => stop),
        'a',
        () => {},
        () => expect.unreachable(),
      );
      await listener.asked;
      const closed = listener.close();
      await vi.advanceTimersByTimeAsync(ENDING);
      await closed;
    } finally {
      vi.useRealTimers();
    }
  });

  it.each([
    ['never answers', relay(() => new Promise(() => {}))],
    ['is none', undefined],
  ])('closes at once where the relay %s', async (_what, at) => {
    const listener = new RelayListener(
      at,
      'a',
      () => {},
      () => expect.unreachable(),
    );
    await turn();
    expect(listener.isOn).toBe(false);
    await listener.close();
  });
});
