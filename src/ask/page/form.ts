/**
 * An elicitation's schema as a form, and a submitted form as the content of an answer.
 * 1. A form gives a field under `field.` and its name, so that no name is the page's own `token`, `key` or `action`.
 * 2. It gives a choice as its place in the schema: browsers change line ends, and an empty text is no choice.
 * 3. Nothing that a form has makes this throw, and only the schema's own fields are read.
 */
import { canonical, isObject, type JsonObject } from '../../base/values.ts';
import { type Field, fieldOf } from './field.ts';
import { readField } from './read-field.ts';

export function formOf(schema: JsonObject): readonly Field[] {
  const required: ReadonlySet<unknown> = new Set(Array.isArray(schema.required) ? schema.required : []);
  const properties = Object.entries(isObject(schema.properties) ? schema.properties : {});
  return properties.map(([name, field]) => fieldOf(name, isObject(field) ? field : {}, required.has(name)));
}

/** The name of a field's control. Escaped as in JSON, since browsers change line ends in names, too. */
export function controlName({ name }: Field): string {
  return `field.${JSON.stringify(name).slice(1, -1)}`;
}

/** Sentences that say what to do, by the names of fields. */
export type FieldErrors = Readonly<Record<string, string>>;

/**
 * Reads a submitted form: the content of an accepted elicitation, without optional fields that are empty. What it does
 * not check of a schema is the caller's to check.
 */
export function readForm(
  schema: JsonObject,
  form: URLSearchParams,
): { readonly content: JsonObject } | { readonly errors: FieldErrors } {
  const content: [string, unknown][] = [];
  const errors: [string, string][] = [];
  const texts = textsIn(form);
  for (const field of formOf(schema)) {
    const answer = readField(field, texts(controlName(field)));
    if (answer === undefined) continue;
    if ('error' in answer) errors.push([field.name, answer.error]);
    else content.push([field.name, answer.value]);
  }
  // `fromEntries` makes properties, also of `__proto__`.
  return errors.length > 0
    ? { errors: Object.fromEntries(errors) }
    : { content: Object.fromEntries(content) };
}

/** What a form has under a name. It is read once: `getAll` reads all of it for each name. */
export function textsIn(form: URLSearchParams): (name: string) => readonly string[] {
  const texts = new Map<string, string[]>();
  for (const [name, text] of form) {
    const known = texts.get(name);
    if (known === undefined) texts.set(name, [text]);
    else known.push(text);
  }
  return (name) => texts.get(name) ?? [];
}

/** The form that gives `content`, as a browser would send it. Values that a field cannot have are left out. */
export function formWith(fields: readonly Field[], content: JsonObject): URLSearchParams {
  return new URLSearchParams(
    fields.flatMap((field) => {
      const value = Object.hasOwn(content, field.name) ? content[field.name] : undefined;
      return entered(field, value).map((text) => [controlName(field), text]);
    }),
  );
}

/** The form as it is first shown: with the schema's defaults. */
export function firstForm(fields: readonly Field[]): URLSearchParams {
  return formWith(fields, Object.fromEntries(fields.map(({ name, initial }) => [name, initial])));
}

function entered(field: Field, value: unknown): readonly string[] {
  switch (field.kind) {
    case 'text':
      return typeof value === 'string' ? [value] : [];
    case 'number':
      return typeof value === 'number' ? [String(value)] : [];
    case 'choice':
    case 'list': {
      const values: readonly unknown[] =
        field.kind === 'list' ? (Array.isArray(value) ? value : []) : [value];
      // The first of equal choices.
      const known = new Map(
        field.choices.map(({ value }, place) => [canonical(value), place] as const).reverse(),
      );
      const places = values.map((one) => (one === undefined ? -1 : (known.get(canonical(one)) ?? -1)));
      return places.filter((place) => place >= 0).map(String);
    }
    case 'unsupported':
      return [];
  }
}
