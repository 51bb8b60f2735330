/**
 * The differences between two versions of one server, and the outcome of calls that wait while one replaces the other.
 */
import { askDifferences, type Difference, outcomeDifference, short } from './differences.ts';
import type { Column, PlayedStep } from './play.ts';
import { brokenBy } from './replayed.ts';
import { leavesOf, questionsOf, type Sameness } from './same.ts';

export interface VersionNames {
  readonly old: string;
  readonly renewed: string;
}

/** The old version against the new one, revision by revision. */
export function versionDifferences(
  ofOld: readonly Column[],
  ofNew: readonly Column[],
  names: VersionNames,
  same: Sameness,
): Difference[] {
  return pairs(ofOld, ofNew).flatMap(([before, after]) =>
    after.steps.flatMap((step, index): Difference[] => {
      const other = before.steps[index];
      if (other === undefined) return [];
      const found = [
        ...(isSame(step, other, index, same)
          ? []
          : outcomeDifference(step, { name: names.old, step: other }, index, same)),
        ...askDifferences(questionsOf(step, same), questionsOf(other, same), `by ${names.old}`),
        ...stepDifferences(step.ran, other.ran, names),
      ];
      return found.map(([kind, text]) => ({
        kind,
        step: index,
        columns: [after.revision],
        text: kind === 'steps' ? text : `${names.renewed} ${text}`,
      }));
    }),
  );
}

/** Calls that began on the old version and ended on the new one must end as on one of them. */
export function upgradeDifferences(
  moved: readonly Column[],
  versions: { readonly old: readonly Column[]; readonly renewed: readonly Column[] },
  { old, renewed }: VersionNames,
  same: Sameness,
): Difference[] {
  return moved.flatMap((column) =>
    column.steps.flatMap((step, index): Difference[] => {
      const own = [...versions.renewed, ...versions.old].filter(
        ({ revision }) => revision === column.revision,
      );
      const ended = own.flatMap(({ steps }) => steps[index] ?? []);
      const [measure] = ended;
      if (measure === undefined || ended.some((other) => isSame(step, other, index, same))) return [];
      const broken = brokenBy(step.log);
      const words = outcomeDifference(step, { name: renewed, step: measure }, index, same).map(
        ([, text]) => text,
      );
      const renaming = stepDifferences(measure.ran, ended[1]?.ran ?? [], { old, renewed }).map(
        ([, text]) => text,
      );
      const why =
        broken === undefined
          ? ''
          : ` ${renaming[0] ?? `The new version does otherwise than the journal records: ${broken}`}.`;
      const text = `a call that began on ${old} does not end on ${renewed} as on either: it ${words[0] ?? 'comes to something else'}.${why}${ADVICE}`;
      return [{ kind: 'upgrade', step: index, columns: [column.revision], text }];
    }),
  );
}

const ADVICE =
  ' Keep the names and the order of its steps until the calls that wait are over, or let them end on the old version first.';

function stepDifferences(
  ran: readonly string[],
  before: readonly string[],
  names: VersionNames,
): (readonly ['steps', string])[] {
  const gone = before.filter((name) => !ran.includes(name));
  const fresh = ran.filter((name) => !before.includes(name));
  if (gone.length === 0 && fresh.length === 0) {
    if (ran.join('\0') === before.join('\0')) return [];
    return [
      [
        'steps',
        `${names.renewed} runs its steps in another order: ${ran.join(', ')}; ${names.old}: ${before.join(', ')}`,
      ],
    ];
  }
  const renamed = gone.flatMap((name) => {
    const other = ran[before.indexOf(name)];
    return other !== undefined && fresh.includes(other) ? [[name, other] as const] : [];
  });
  const left = gone.filter((name) => !renamed.some(([from]) => from === name));
  const added = fresh.filter((name) => !renamed.some(([, to]) => to === name));
  return [
    ...renamed.map(
      ([from, to]) =>
        [
          'steps',
          `${names.renewed} renames the step '${from}' to '${to}': what '${from}' did for a call that waits is unknown under the new name`,
        ] as const,
    ),
    ...left.map(
      (name) => ['steps', `${names.renewed} does not run the step '${short(name)}' of ${names.old}`] as const,
    ),
    ...added.map(
      (name) => ['steps', `${names.renewed} runs a step '${short(name)}' that ${names.old} has not`] as const,
    ),
  ];
}

export function isSame(step: PlayedStep, other: PlayedStep, index: number, same: Sameness): boolean {
  const key = (one: PlayedStep): string => JSON.stringify([...leavesOf(one, index, same)]);
  return key(step) === key(other);
}

function pairs(ofOld: readonly Column[], ofNew: readonly Column[]): [Column, Column][] {
  return ofNew.flatMap((after): [Column, Column][] => {
    const before = ofOld.find(({ revision }) => revision === after.revision);
    return before === undefined ? [] : [[before, after]];
  });
}
