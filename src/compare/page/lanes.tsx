/** The messages of the chosen columns, a lane each, on a common time line. */
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Difference } from '../differences.ts';
import type { Column } from '../play.ts';
import type { WireMessage } from '../wire.ts';
import { type AlignedRow, neighbourOf, rowsOf } from './align.ts';
import { differingLeaves, JsonView } from './json.tsx';

interface StepProps {
  readonly columns: readonly Column[];
  readonly step: number;
  readonly title: string;
  readonly differences: readonly Difference[];
  readonly isShown: (message: WireMessage) => boolean;
  readonly onToggle: (label: string, isOpen: boolean) => void;
}

/** One step: a heading, what differs in it, and its rows. */
export function StepSection({ columns, step, title, differences, isShown, onToggle }: StepProps) {
  const rows = useMemo(() => rowsOf(columns, step, isShown), [columns, step, isShown]);
  const span = useMemo(() => spanOf(columns, step), [columns, step]);
  if (rows.length === 0) return null;
  const id = `step-${step}`;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {differences.length > 0 && (
        <ul class="differences">
          {differences.map((one) => (
            <li key={one.columns.join() + one.text}>
              <span class="tag">{one.columns.join(', ')}</span> {one.text}
            </li>
          ))}
        </ul>
      )}
      <div class="lanes" style={{ '--lanes': columns.length }}>
        {columns.map(({ name }) => (
          <div class="lane-name" key={name} aria-hidden="true">
            {name}
          </div>
        ))}
        {rows.flatMap((row, at) =>
          row.cells.map((message, lane) => {
            const column = columns[lane];
            if (column === undefined) return null;
            const key = `${column.name} ${at}`;
            if (message === undefined) return <div class="gap" key={key} />;
            return (
              <MessageCard
                key={key}
                {...{ row, lane, message, onToggle }}
                column={column.name}
                place={`${column.name}, step ${step + 1}, row ${at + 1}`}
                row={row}
                began={span.began[lane] ?? 0}
                length={span.length}
              />
            );
          }),
        )}
      </div>
    </section>
  );
}

interface CardProps {
  readonly row: AlignedRow;
  readonly lane: number;
  readonly column: string;
  /** Where it stands, in words that no other message has. */
  readonly place: string;
  readonly message: WireMessage;
  /** When the step began in this column, and how long it takes in the slowest one, in milliseconds. */
  readonly began: number;
  readonly length: number;
  readonly onToggle: (label: string, isOpen: boolean) => void;
}

function MessageCard({ row, lane, column, place, message, began, length, onToggle }: CardProps) {
  const { from, kind, label, via, process, bytes, at } = message;
  const neighbour = neighbourOf(row, lane);
  const differs = neighbour === undefined ? 0 : differingLeaves(message.message, neighbour.message);
  const after = Math.max(0, at - began);
  const arrow = from === 'client' ? '→' : '←';
  return (
    <details
      class={`card ${from} ${kind}`}
      data-lane={lane}
      onToggle={({ currentTarget }) => onToggle(`${column}: ${label}`, currentTarget.open)}
    >
      <summary>
        <span class="lane-label">{column} </span>
        <span class="tick" style={{ '--at': length === 0 ? 0 : after / length }} aria-hidden="true" />
        <span class="kind">
          {arrow} {kind}
        </span>{' '}
        <span class="label">{label}</span>{' '}
        <span class="facts">
          {process} · {via} · {bytes} B · +{after.toFixed(0)} ms
          {differs > 0 && ` · ${differs} differ`}
        </span>
      </summary>
      <section aria-label={`JSON of ${place}: ${kind} ${label}`}>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
        <pre tabIndex={0}>
          <Cut
            value={message.message}
            whole={() => (
              <JsonView
                value={message.message}
                other={neighbour?.message}
                isCompared={neighbour !== undefined}
              />
            )}
          />
        </pre>
      </section>
    </details>
  );
}

/** Characters of a cell; more of them make a page slow, and are shown on demand. */
const MOST = 20_000;

/** A value as it is, or its first part with a button for the rest. */
function Cut({ value, whole }: { readonly value: unknown; readonly whole: () => JSX.Element }) {
  const [isWhole, setWhole] = useState(false);
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? '', [value]);
  if (isWhole || text.length <= MOST) return whole();
  return (
    <>
      {`${text.slice(0, MOST)}…\n`}
      <button type="button" onClick={() => setWhole(true)}>
        Show all {(text.length / 1_000).toFixed(0)} kB
      </button>
    </>
  );
}

function spanOf(
  columns: readonly Column[],
  step: number,
): { readonly began: number[]; readonly length: number } {
  const times = columns.map(({ messages }) =>
    messages.filter((one) => one.step === step).map(({ at }) => at),
  );
  const began = times.map((own) => (own.length === 0 ? 0 : Math.min(...own)));
  const length = Math.max(
    0,
    ...times.map((own, lane) => (own.length === 0 ? 0 : Math.max(...own) - (began[lane] ?? 0))),
  );
  return { began, length };
}
