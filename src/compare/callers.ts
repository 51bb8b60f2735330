/**
 * Two callers at once, in one process: neither may get the other's data. Each fills its forms in with words of its own,
 * so such a word at the wrong place is a leak.
 */
import { randomBytes } from 'node:crypto';
import { isObject, type JsonObject } from '../base/values.ts';
import { type Difference, short } from './differences.ts';
import type { Column, Performance } from './play.ts';
import type { Replayable } from './settings.ts';

/** How long one caller waits for the other to come as far, in milliseconds. */
const PATIENCE = 500;

/**
 * Plays a caller "ann" alone, and then together with "bob", to find state that calls share, at once or one after the
 * other.
 */
export async function findLeaks(stage: Replayable): Promise<Difference[]> {
  const [ann, bob] = [callerOf('ann'), callerOf('bob')];
  await stage.kept(ann.performance());
  const pace = new Pace(2);
  const [annAgain, bobs] = await Promise.all([
    stage.kept(ann.performance(pace)),
    stage.kept(bob.performance(pace)),
  ]);
  return [...leaks(bobs, ann.mark), ...leaks(annAgain, bob.mark)];
}

function callerOf(name: string): { readonly mark: string; performance(pace?: Pace): Partial<Performance> } {
  const mark = `${name}-${randomBytes(4).toString('hex')}`;
  return {
    mark,
    performance: (pace) => ({
      name,
      token: mark,
      accent: (content, schema) => accented(content, schema, mark),
      ...(pace !== undefined && {
        beforeAnswer: (step: number, nth: number) => pace.arrive(name, step * 1_000 + nth),
        onStep: (step: number) => pace.pass(name, step * 1_000),
      }),
    }),
  };
}

/** Texts that may be anything become the caller's own. */
function accented(content: JsonObject, schema: JsonObject, mark: string): JsonObject {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const isFree = (field: string): boolean => {
    const property = properties[field];
    if (!isObject(property) || property.type !== 'string') return false;
    return !['enum', 'oneOf', 'anyOf', 'const', 'format', 'pattern', 'maxLength'].some(
      (word) => word in property,
    );
  };
  return Object.fromEntries(
    Object.entries(content).map(([field, value]) => [
      field,
      typeof value === 'string' && isFree(field) ? mark : value,
    ]),
  );
}

function leaks({ steps }: Column, mark: string): Difference[] {
  return steps.flatMap((step, index): Difference[] => {
    const question = step.asks.find((ask) => JSON.stringify(ask.params).includes(mark))?.question;
    const result = JSON.stringify(step.outcome);
    if (question === undefined && !result.includes(mark)) return [];
    const where =
      question === undefined
        ? `its result: ${short(around(result, mark))}`
        : `the question "${short(question)}"`;
    const text = `leaks between callers: what one caller answered is told to another one, in ${where}. The server keeps it outside of the call, in a variable of its module or its instance.`;
    return [{ kind: 'leak', step: index, columns: ['two callers'], text }];
  });
}

function around(text: string, mark: string): string {
  return text.slice(Math.max(0, text.indexOf(mark) - 40));
}

/** Keeps callers in step: each gives its next answer when the others have been asked as often. */
class Pace {
  readonly #callers: number;
  readonly #at = new Map<string, number>();
  readonly #waiting = new Set<() => void>();

  constructor(callers: number) {
    this.#callers = callers;
  }

  pass(name: string, place: number): void {
    this.#at.set(name, place);
    for (const wake of this.#waiting) wake();
  }

  async arrive(name: string, place: number): Promise<void> {
    this.pass(name, place);
    const isTogether = (): boolean =>
      this.#at.size === this.#callers && [...this.#at.values()].every((other) => other >= place);
    if (isTogether()) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve();
      };
      const look = (): void => {
        if (isTogether()) done();
      };
      const timer = setTimeout(done, PATIENCE);
      this.#waiting.add(look);
    });
  }
}
