/** A process asks a relay for the messages to its name. The relay agrees, fails or never answers, or there is no relay. */
import { describe, expect, it } from 'vitest';
import { type Relay, RelayListener } from '../../src/call/ports.ts';

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

  it('is not reached where that fails, and says why', async () => {
    const failed: unknown[] = [];
    const down = relay(() => Promise.reject(new Error('down')));
    const listener = new RelayListener(
      down,
      'a',
      () => {},
      (error) => failed.push(String(error)),
    );
    await turn();
    expect([listener.isOn, failed]).toEqual([false, ['Error: down']]);
    await listener.close();
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
