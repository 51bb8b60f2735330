/** The user of one step: answers asks from the scenario, or fills forms in from their schemas. */
import { ELICIT, isObject, type JsonObject, objectOf } from '../base/values.ts';
import type { Answer, Answering, Ask, Scenario } from './scenario.ts';

/** An ask as its client saw it. */
export interface PlayedAsk extends Ask {
  readonly answer: JsonObject;
}

export interface UserOptions {
  readonly roots: readonly string[];
  readonly answers: readonly Answer[] | Answering | undefined;
  /** Changes the content of a form, to distinguish the answers of two users. */
  readonly accent?: ((content: JsonObject, schema: JsonObject) => JsonObject) | undefined;
  /** Before each answer goes out; `nth` counts from 1 in its step. */
  readonly beforeAnswer?: ((nth: number) => Promise<void>) | undefined;
  /** A person who answers instead; `suggested` is the answer that would be given without one. */
  readonly by?: ((ask: Ask, suggested: JsonObject) => Promise<JsonObject>) | undefined;
}

export class User {
  readonly asks: PlayedAsk[] = [];
  /** Questions that the scenario has no answer for; they were cancelled. */
  readonly unanswered: Ask[] = [];
  readonly #options: UserOptions;
  readonly #used = new Set<Answer>();
  /** A question that comes back word for word gets the same answer again. */
  readonly #said = new Map<string, Answer>();

  constructor(options: UserOptions) {
    this.#options = options;
  }

  /** Places of answers that no question took, from 1. */
  get unused(): readonly number[] {
    const { answers } = this.#options;
    if (answers === undefined || typeof answers === 'function') return [];
    return answers.flatMap((answer, index) => (this.#used.has(answer) ? [] : [index + 1]));
  }

  async reply(method: string, params: JsonObject): Promise<JsonObject> {
    const ask: Ask = { method, question: questionOf(method, params), params };
    const { by } = this.#options;
    const suggested = this.#answerTo(ask);
    const answer = by === undefined || method === 'roots/list' ? suggested : await by(ask, suggested);
    this.asks.push({ ...ask, answer });
    await this.#options.beforeAnswer?.(this.asks.length);
    return answer;
  }

  #answerTo(ask: Ask): JsonObject {
    const { roots, answers } = this.#options;
    if (ask.method === 'roots/list')
      return { roots: roots.map((uri) => ({ uri, name: uri.split('/').findLast(Boolean) ?? uri })) };
    const chosen = typeof answers === 'function' ? answers(ask) : this.#choose(ask, answers);
    if (chosen !== undefined) return this.#spoken(chosen, ask);
    if (ask.method === 'sampling/createMessage') return sampleOf('a sample');
    if (answers !== undefined) {
      this.unanswered.push(ask);
      return { action: 'cancel' };
    }
    return this.#spoken({ accept: ask.params.mode === 'url' ? true : filledIn(schemaOf(ask)) }, ask);
  }

  #choose(ask: Ask, answers: readonly Answer[] | undefined): Answer | undefined {
    const free = (answers ?? []).filter((answer) => !this.#used.has(answer));
    const chosen = free.find((answer) => isFor(answer, ask)) ?? this.#said.get(ask.question);
    if (chosen === undefined) return undefined;
    this.#used.add(chosen);
    this.#said.set(ask.question, chosen);
    return chosen;
  }

  #spoken(answer: Answer, ask: Ask): JsonObject {
    if (answer.sample !== undefined) return sampleOf(answer.sample);
    if (answer.decline) return { action: 'decline' };
    if (answer.cancel) return { action: 'cancel' };
    if (!isObject(answer.accept)) return { action: 'accept' };
    const content = this.#options.accent?.(answer.accept, schemaOf(ask)) ?? answer.accept;
    return { action: 'accept', content };
  }
}

/** The user of a step of the scenario. */
export function userOf(
  scenario: Scenario,
  step: object,
  more: Pick<UserOptions, 'accent' | 'beforeAnswer' | 'by'> = {},
): User {
  const { answers } = step as { readonly answers?: UserOptions['answers'] };
  return new User({ roots: scenario.client?.roots ?? ['file:///home/ann'], answers, ...more });
}

export function questionOf(method: string, params: JsonObject): string {
  if (method === ELICIT) {
    return params.mode === 'url' ? `${String(params.message)} ${String(params.url)}` : String(params.message);
  }
  if (method !== 'sampling/createMessage') return method === 'roots/list' ? 'roots' : method;
  const messages = Array.isArray(params.messages) ? params.messages : [];
  const texts = messages.map(({ content }) =>
    isObject(content) ? String(content.text ?? content.type) : '',
  );
  return `sampling: ${texts.join(' ')}`;
}

function isFor({ to, accept, sample }: Answer, { method, question, params }: Ask): boolean {
  const samples = method === 'sampling/createMessage';
  if (samples !== (sample !== undefined)) return false;
  if (to !== undefined) return question.includes(to);
  if (!isObject(accept)) return accept === undefined || params.mode === 'url';
  if (params.mode === 'url') return false;
  const fields = propertiesOf(params.requestedSchema);
  return Object.keys(accept).every((field) => field in fields);
}

function schemaOf({ params }: Ask): JsonObject {
  return objectOf(params.requestedSchema);
}

function propertiesOf(schema: unknown): Readonly<Record<string, JsonObject>> {
  const properties = objectOf(objectOf(schema).properties);
  return Object.fromEntries(
    Object.entries(properties).filter((entry): entry is [string, JsonObject] => isObject(entry[1])),
  );
}

/** Content that a schema takes: each required field, or all where none is required. */
export function filledIn(schema: JsonObject): JsonObject {
  const properties = propertiesOf(schema);
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  const fields = required.length > 0 ? required : Object.keys(properties);
  return Object.fromEntries(fields.map((field) => [field, valueFor(field, properties[field] ?? {})]));
}

const FORMATS: Readonly<Record<string, string>> = {
  email: 'ann@example.com',
  uri: 'https://example.com/',
  date: '2026-01-31',
  'date-time': '2026-01-31T12:00:00Z',
};

/** A value that one property of a schema takes. */
export function valueFor(field: string, schema: JsonObject): unknown {
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  const titled = [schema.oneOf ?? schema.anyOf ?? []].flat();
  const consts = titled.flatMap((choice) => (isObject(choice) && 'const' in choice ? [choice.const] : []));
  const choices = Array.isArray(schema.enum) ? schema.enum : consts;
  if (choices.length > 0) return choices[0];
  switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
    case 'boolean':
      return true;
    case 'integer':
    case 'number':
      return Math.max(Number(schema.minimum ?? 1), Number(schema.exclusiveMinimum ?? 0) + 1);
    case 'array':
      return isObject(schema.items) ? [valueFor(field, schema.items)] : [];
    case 'object':
      return filledIn(schema);
    default: {
      return (FORMATS[String(schema.format)] ?? `a ${field}`)
        .padEnd(Number(schema.minLength ?? 0), '.')
        .slice(0, Number(schema.maxLength ?? 1_000));
    }
  }
}

function sampleOf(text: string): JsonObject {
  return { role: 'assistant', model: 'side-by-side', content: { type: 'text', text } };
}
