/** `Math.random`, and `randomUUID` of the global `crypto` and of `node:crypto`. */
import nodeCrypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { currentContext } from '../call/frame/context.ts';
import { placeOf } from './place.ts';

type Uuid = ReturnType<typeof nodeCrypto.randomUUID>;

export function patchRandom(): void {
  const realRandom = Math.random;
  Math.random = function random(): number {
    const draw = currentContext()?.draw;
    return draw === undefined ? realRandom() : Number(draw(placeOf('random', random), realRandom));
  };

  const realUuid = nodeCrypto.randomUUID;
  nodeCrypto.randomUUID = function randomUUID(options): Uuid {
    const draw = currentContext()?.draw;
    const fresh = (): Uuid => realUuid(options);
    return draw === undefined ? fresh() : asUuid(draw(placeOf('uuid', randomUUID), fresh), fresh);
  };
  // Updates `import { randomUUID } from 'node:crypto'`, a live binding that changes only by this call.
  syncBuiltinESMExports();

  const { crypto } = globalThis;
  const realWebUuid = crypto.randomUUID;
  Object.defineProperty(crypto, 'randomUUID', {
    value: function randomUUID(this: Crypto): Uuid {
      const fresh = (): Uuid => realWebUuid.call(this);
      const draw = currentContext()?.draw;
      return draw === undefined ? fresh() : asUuid(draw(placeOf('uuid', randomUUID), fresh), fresh);
    },
    writable: true,
    configurable: true,
    enumerable: true,
  });
}

function isUuid(value: unknown): value is Uuid {
  return typeof value === 'string' && value.split('-').length === 5;
}

/** Checks a UUID read from a journal, whose content may be anything. */
function asUuid(value: unknown, fresh: () => Uuid): Uuid {
  return isUuid(value) ? value : fresh();
}
