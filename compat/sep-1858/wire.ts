/** The facts of SEP-1858's wire that both sides of a session need. */
import type { Sink } from '../../src/stream/tail.ts';

export const REVISION = 'DRAFT-SEP-1858';

/** The server disconnects after `input_required`. */
export function untilInput(sink: Sink): Sink {
  return {
    ...sink,
    send: (event, id) => {
      const keepsUp = sink.send(event, id);
      if (event.event === 'input_required') sink.end('finished');
      return keepsUp;
    },
  };
}
