/** What of a comparison is shown: revisions, kinds of messages, and a text to search for. */
import type { MessageKind } from '../wire.ts';

export const KINDS: readonly MessageKind[] = [
  'request',
  'ask',
  'answer',
  'result',
  'error',
  'notification',
  'other',
];

export interface ShownColumns {
  readonly columns: ReadonlySet<string>;
  readonly kinds: ReadonlySet<MessageKind>;
  readonly search: string;
}

interface FilterProps {
  readonly names: readonly string[];
  readonly shown: ShownColumns;
  readonly onChange: (shown: ShownColumns) => void;
}

export function Filters({ names, shown, onChange }: FilterProps) {
  return (
    <form class="filters" aria-label="What is shown" onSubmit={(event) => event.preventDefault()}>
      <Choices
        legend="Revisions"
        all={names}
        chosen={shown.columns}
        onChange={(columns) => onChange({ ...shown, columns })}
      />
      <Choices
        legend="Messages"
        all={KINDS}
        chosen={shown.kinds}
        onChange={(kinds) => onChange({ ...shown, kinds })}
      />
      <label class="search">
        Search
        <input
          type="search"
          value={shown.search}
          onInput={({ currentTarget }) => onChange({ ...shown, search: currentTarget.value })}
        />
      </label>
    </form>
  );
}

interface ChoicesProps<T extends string> {
  readonly legend: string;
  readonly all: readonly T[];
  readonly chosen: ReadonlySet<T>;
  readonly onChange: (chosen: ReadonlySet<T>) => void;
}

function Choices<T extends string>({ legend, all, chosen, onChange }: ChoicesProps<T>) {
  const toggle = (name: T): void => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    onChange(next);
  };
  return (
    <fieldset>
      <legend>{legend}</legend>
      {all.map((name) => (
        <label key={name}>
          <input type="checkbox" checked={chosen.has(name)} onChange={() => toggle(name)} /> {name}
        </label>
      ))}
    </fieldset>
  );
}
