/** What happens to the calls of a live play: a lane for each process, one line after the other. */
import type { Happening } from '../live.ts';

interface SequenceProps {
  readonly happenings: readonly Happening[];
  readonly processes: readonly string[];
}

/** A list in which each line stands in the lane of its process, and says it in words, too. */
export function SequenceView({ happenings, processes }: SequenceProps) {
  if (happenings.length === 0) return null;
  return (
    <section aria-labelledby="sequence">
      <h2 id="sequence">What happens, and where</h2>
      <p class="hint">
        A process that goes on with a call of another one runs its tool again. What stands in the journal is
        not repeated: it is grey.
      </p>
      <ol class="sequence" style={{ '--lanes': processes.length }}>
        {happenings.map((one, nth) => (
          <Line key={nth} happening={one} row={nth + 1} lane={Math.max(0, processes.indexOf(one.process))} />
        ))}
      </ol>
    </section>
  );
}

interface LineProps {
  readonly happening: Happening;
  readonly row: number;
  readonly lane: number;
}

function Line({ happening: { process, kind, text }, row, lane }: LineProps) {
  return (
    <li class={`happening ${kind}`} style={{ '--lane': lane + 1, '--row': row }}>
      <span class="tag">{process}</span> {text}
    </li>
  );
}
