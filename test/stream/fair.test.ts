/** Streams that come back at once are read in turn, their callers one after the other, however many each has. */
import { expect, it } from 'vitest';
import type { StreamEvent } from '../../src/stream/log.ts';
import { Connection, startProcess, until } from './workbench.ts';

it('one of a known caller is not read behind the many of a stranger', async () => {
  const streams = startProcess();
  const expires = Date.now() + 60_000;
  const names = ['ann', ...Array.from({ length: 50 }, () => undefined)];
  const found = names.map(async (owner, nth) => {
    const stream = streams.standing(`session ${nth}`, expires, owner);
    for (let at = 0; at < 20; at += 1) await stream.append({ data: String(at) });
    return streams.find(stream.id, 1, `session ${nth}`);
  });
  let before: number | undefined;
  const others = names.slice(1).map(() => new Connection());
  class Known extends Connection {
    override send(event: StreamEvent, id: string): boolean {
      const goesOn = super.send(event, id);
      if (this.data.length === 19) before = others.reduce((sum, { data }) => sum + data.length, 0);
      return goesOn;
    }
  }
  const sinks = [new Known(), ...others];
  const places = await Promise.all(found);
  await Promise.all(places.toReversed().map((place, nth) => place.follow(sinks.at(-1 - nth) as Connection)));
  await until(() => before !== undefined);
  expect(before).toBeLessThan(100);
  await streams.close();
});
