/** What a request comes to that cannot be served: nobody awaits the reason who could tell it. */
import type { Outcome } from '../src/call/ports.ts';
import { wireError } from '../src/call/wire-error.ts';
import { AwaitError } from '../src/error.ts';
import type { Services } from './services.ts';

/** For a `catch`: the reason goes to the logger, and a frozen sentence to the client. */
export function failure({ settings }: Services): (thrown: unknown) => Outcome {
  return (thrown) => {
    const error = AwaitError.from(thrown);
    settings.logger.error(error.message, { code: error.code, cause: String(error.cause ?? '') });
    return { kind: 'responded', response: { error: wireError(error) } };
  };
}
