/** The page of a comparison. It reads what stands in it, asks nothing of any network, and keeps nothing. */
import { render } from 'preact';
import { useCallback, useMemo, useState } from 'preact/hooks';
import type { Comparison } from '../compare.ts';
import type { LiveState } from '../live.ts';
import { notCalled, UNSEEN } from '../notes.ts';
import type { Column } from '../play.ts';
import type { WireMessage } from '../wire.ts';
import { Filters, KINDS, type ShownColumns } from './filters.tsx';
import { moveFocus } from './keyboard.ts';
import { StepSection } from './lanes.tsx';
import { LivePage } from './live.tsx';

export function Page({ comparison }: { readonly comparison: Comparison }) {
  const { columns, differences, problems, scenario, uncalled, versions } = comparison;
  const names = useMemo(() => columns.map(({ name }) => name), [columns]);
  const [shown, setShown] = useState<ShownColumns>(() => ({
    columns: firstTwo(comparison),
    kinds: new Set(KINDS),
    search: '',
  }));
  const [said, say] = useState('');
  const chosen = useMemo(
    () => columns.filter(({ name }) => shown.columns.has(name)),
    [columns, shown.columns],
  );
  const { kinds, search } = shown;
  const isShown = useCallback(
    (message: WireMessage) =>
      kinds.has(message.kind) && (search === '' || textOf(message).includes(search.toLowerCase())),
    [kinds, search],
  );
  const count = (of: readonly Column[]): number =>
    of.reduce((sum, { messages }) => sum + messages.filter(isShown).length, 0);
  const change = (next: ShownColumns): void => {
    say('');
    setShown(next);
  };
  const onToggle = useCallback(
    (label: string, isOpen: boolean) => say(`${isOpen ? 'Opened' : 'Closed'} ${label}`),
    [],
  );
  const steps = [-1, ...scenario.steps.keys()];
  return (
    <>
      <header>
        <h1>{versions.join(' and ')} side by side</h1>
        <p>
          {scenario.name === undefined ? '' : `${scenario.name}: `}
          {scenario.steps.length} steps on {columns.length} columns, {differences.length} differences
          {problems.length > 0 && `, ${problems.length} mistakes`}.
        </p>
        {uncalled.length > 0 && <p class="mistake">{notCalled(uncalled)}</p>}
        <p class="hint">{UNSEEN}</p>
        <p class="hint">
          Arrow keys go from message to message, Enter opens one; what differs from its neighbour is marked.
        </p>
      </header>
      <Filters names={names} shown={shown} onChange={change} />
      <p role="status" class="status">
        {count(chosen)} of {count(columns)} messages shown, on {chosen.length} of {columns.length} columns.{' '}
        {said}
      </p>
      <main onKeyDown={moveFocus}>
        {steps.map((step) => (
          <StepSection
            key={step}
            columns={chosen}
            step={step}
            title={
              step < 0 ? 'Before the first step' : `${step + 1}. ${columns[0]?.steps[step]?.title ?? ''}`
            }
            differences={differences.filter((one) => one.step === step)}
            {...{ isShown, onToggle }}
          />
        ))}
      </main>
    </>
  );
}

/** A column that differs beside one that does not; else the oldest and the newest but one. */
function firstTwo({ columns, differences }: Comparison): Set<string> {
  const names = columns.map(({ name }) => name);
  const differing = names.filter((name) => differences.some((one) => one.columns.includes(name)));
  const [other] = names.filter((name) => !differing.includes(name));
  const columnOf = (wanted: string): string | undefined =>
    columns.find(({ revision }) => String(revision) === wanted)?.name;
  const modern = columnOf('2026-07-28');
  const first = columnOf('2025-11-25') ?? names[0];
  const pair = differing.length > 0 ? [other, differing[0]] : [first, modern];
  return new Set([...pair, ...names].filter((name) => name !== undefined).slice(0, 2));
}

function textOf({ label, kind, message }: WireMessage): string {
  return `${kind} ${label} ${JSON.stringify(message)}`.toLowerCase();
}

/** A text that stands in the page once, for all messages that have it. */
function textAt(value: unknown, texts: readonly string[]): unknown {
  const nth = typeof value === 'string' ? /^\uE000(\d+)$/.exec(value)?.[1] : undefined;
  return nth === undefined ? value : texts[Number(nth)];
}

const place = document.getElementById('app');
const data = document.getElementById('comparison')?.textContent;
if (place !== null && data) {
  const texts = JSON.parse(document.getElementById('texts')?.textContent || '[]') as string[];
  const shown = JSON.parse(data, (_name, value: unknown) => textAt(value, texts)) as Comparison | LiveState;
  render('live' in shown ? <LivePage first={shown} /> : <Page comparison={shown} />, place);
}
