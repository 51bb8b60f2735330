/**
 * The differences between two versions of one server, and the outcome of calls that wait while one replaces the other.
 */
import { askDifferences, type Difference, isSame, outcomeDifference, short } from './differences.ts';
import type { Column } from './play.ts';
import { brokenBy } from './replayed.ts';
import { questionsOf, type Sameness } from './same.ts';

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
  return ofNew.flatMap((after) =>
    after.steps.flatMap((step, index): Difference[] => {
      const other = ofOld.find(({ revision }) => revision === after.revision)?.steps[index];
      if (other === undefined) return [];
      const found = [
        ...outcomeDifference(step, { name: names.old, step: other }, index, same),
        ...askDifferences(questionsOf(step, same), questionsOf(other, same), `by ${names.old}`),
        ...stepDifferences(step.ran, other.ran, names).map((text) => ['steps', text] as const),
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
      const [renaming] = stepDifferences(measure.ran, ended[1]?.ran ?? [], { old, renewed });
      const why =
        broken === undefined
          ? ''
          : ` ${renaming ?? `The new version does otherwise than the journal records: ${broken}`}.`;
      const text = `a call that began on ${old} does not end on ${renewed} as on either: it ${words[0] ?? 'comes to something else'}.${why}${ADVICE}`;
      return [{ kind: 'upgrade', step: index, columns: [column.revision], text }];
    }),
  );
}

const ADVICE = ' Keep names and order of its steps until waiting calls are over.';

function stepDifferences(ran: readonly string[], before: readonly string[], names: VersionNames): string[] {
  const gone = before.filter((name) => !ran.includes(name));
  const fresh = ran.filter((name) => !before.includes(name));
  if (gone.length === 0 && fresh.length === 0) {
    if (ran.join('\0') === before.join('\0')) return [];
    return [
      `${names.renewed} runs its steps in another order: ${ran.join(', ')}; ${names.old}: ${before.join(', ')}`,
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
        `${names.renewed} renames the step '${from}' to '${to}': what '${from}' did for a waiting call is then unknown`,
    ),
    ...left.map((name) => `${names.renewed} does not run the step '${short(name)}' of ${names.old}`),
    ...added.map((name) => `${names.renewed} runs a step '${short(name)}' that ${names.old} has not`),
  ];
}
