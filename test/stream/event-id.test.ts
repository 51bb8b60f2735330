import fc from 'fast-check';
import { expect, it } from 'vitest';
import { limitsOf } from '../../src/call/limits.ts';
import {
  batchEventId,
  callIdOf,
  lastingEventId,
  MOST_NAMED,
  newStreamId,
  parseBatchId,
  parseLastingId,
  sharedId,
} from '../../src/stream/event-id.ts';

const place = fc.record({ sequence: fc.nat(99_999), nth: fc.option(fc.integer({ min: 1, max: 999 })) });
const placeOf = ({ sequence, nth }: { sequence: number; nth: number | null }) =>
  nth === null ? { sequence } : { sequence, nth };
const LIMITS = limitsOf();
const EXPIRES = Date.UTC(2040, 0);

it('of an array of as many calls as there may be is accepted, however far each is', () => {
  const most = LIMITS.batch;
  const places = fc.array(place, { minLength: 2, maxLength: most }).map((all) => all.map(placeOf));
  fc.assert(
    fc.property(places, (all) => {
      const stream = newStreamId(EXPIRES);
      const id = batchEventId(stream, all);
      expect(parseBatchId(id, LIMITS.eventIdBytes, most)).toEqual({ stream, places: all });
    }),
  );
});

it('of more calls than an array or a lasting stream may have is refused: each place is a read', () => {
  const stream = newStreamId(EXPIRES);
  const places = Array.from({ length: LIMITS.batch + 1 }, () => ({ sequence: 1 }));
  expect(parseBatchId(batchEventId(stream, places), LIMITS.eventIdBytes, LIMITS.batch)).toBeUndefined();
  const calls = new Map(
    Array.from({ length: MOST_NAMED + 1 }, () => [callIdOf(newStreamId(EXPIRES)), { sequence: 1 }]),
  );
  const id = lastingEventId({ prefix: sharedId(EXPIRES), sequence: 1, calls });
  expect(id.length).toBeLessThan(LIMITS.eventIdBytes);
  expect(parseLastingId(id, LIMITS.eventIdBytes)).toBeUndefined();
});

it('of a lasting stream is accepted, however many calls are open', () => {
  const calls = fc
    .array(place, { minLength: LIMITS.streams, maxLength: LIMITS.streams })
    .map((all) => all.map(placeOf));
  fc.assert(
    fc.property(calls, fc.nat(999_999), fc.boolean(), (all, sequence, isShared) => {
      const prefix = isShared ? sharedId(EXPIRES) : callIdOf(newStreamId(EXPIRES));
      const open = new Map(all.map((one) => [callIdOf(newStreamId(EXPIRES)), one]));
      const id = lastingEventId({ prefix, sequence, calls: open });
      expect(parseLastingId(id, LIMITS.eventIdBytes)).toEqual({ prefix, sequence, calls: open });
      // A digit more in front is another stream's, and a character more at its end none's.
      expect(parseLastingId(`${id}~`, LIMITS.eventIdBytes)).toBeUndefined();
    }),
  );
});
