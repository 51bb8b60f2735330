/**
 * An elicitation's schema as a form, and a submitted form as the content of an answer.
 * 1. A form gives a field under `field.` and its name, so that no name is the page's own `token`, `key` or `action`.
 * 2. It gives a choice as its place in the schema: browsers change line ends, and an empty text is no choice.
 * 3. Nothing that a form has makes this throw, and only the schema's own fields are read.
 */
import { canonical, counted, type JsonObject, objectOf } from '../../base/values.ts';
import { patternsOf } from '../../host/linear.ts';
import {
  type Field,
  fieldOf,
  type ListField,
  type NumberField,
  type TextField,
  type TextFormat,
} from './field.ts';

export function formOf(schema: JsonObject): readonly Field[] {
  const required: ReadonlySet<unknown> = new Set(Array.isArray(schema.required) ? schema.required : []);
  return Object.entries(objectOf(schema.properties)).map(([name, field]) =>
    fieldOf(name, objectOf(field), required.has(name)),
  );
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

// --- fields ---

/** Reads what a person entered into one field of a form. */

/** A value of the schema's type, or what to do; undefined for a field that was left out. */
type FieldAnswer = { readonly value: unknown } | { readonly error: string } | undefined;

const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;
const ONE_LISTED = 'Choose one of the listed values.';

/** @param texts what the form has under the field's name, unchecked */
function readField(field: Field, texts: readonly string[]): FieldAnswer {
  if (field.kind === 'list') return readList(field, texts);
  const [text = '', ...more] = texts;
  if (more.length > 0) return { error: 'Give one value only.' };
  switch (field.kind) {
    case 'text':
      return readText(field, text);
    case 'number':
      return readNumber(field, text.trim());
    case 'choice': {
      if (text === '') return field.isRequired ? { error: 'Choose one.' } : undefined;
      const choice = field.choices[indexIn(text)];
      return choice === undefined ? { error: ONE_LISTED } : { value: choice.value };
    }
    case 'unsupported':
      return field.isRequired
        ? { error: 'This page cannot ask for this. Decline, or cancel and answer elsewhere.' }
        : undefined;
  }
}

function readText(field: TextField, entered: string): FieldAnswer {
  const { format, minLength = 0, maxLength = Infinity, pattern, isRequired } = field;
  // Browsers submit the lines of a text with CRLF.
  const text = format === undefined ? entered.replaceAll('\r\n', '\n') : entered.trim();
  if (text === '') return isRequired ? { error: 'Enter a value.' } : undefined;
  const length = [...text].length;
  if (length < minLength)
    return { error: `Enter at least ${counted(minLength, 'character')}; this has ${length}.` };
  if (length > maxLength)
    return { error: `Enter at most ${counted(maxLength, 'character')}; this has ${length}.` };
  if (format !== undefined && !FORMATS[format].isMet(text)) return { error: FORMATS[format].advice };
  if (pattern !== undefined && !matches(text, pattern))
    return { error: `Enter a value that matches the pattern ${pattern}` };
  return { value: text };
}

/** A pattern that is none does not reach a page: its ask is refused. */
function matches(text: string, pattern: string): boolean {
  try {
    return patternsOf({ pattern })?.(text) ?? true;
  } catch {
    return true;
  }
}

function readNumber({ isInteger, minimum, maximum, isRequired }: NumberField, text: string): FieldAnswer {
  if (text === '') return isRequired ? { error: 'Enter a number.' } : undefined;
  const value = NUMBER.test(text) ? Number(text) : Number.NaN;
  if (isInteger && !Number.isInteger(value)) return { error: 'Enter a whole number, such as 3.' };
  if (!Number.isFinite(value)) return { error: 'Enter a number, such as 1.5.' };
  // A larger one would be another number in JSON than the one that was entered.
  const isOther = /^-?\d+$/.test(text) && String(value) !== text;
  if (!Number.isSafeInteger(value) && (isInteger || isOther))
    return { error: `Enter a number of at most ${Number.MAX_SAFE_INTEGER}.` };
  if (minimum !== undefined && value < minimum) return { error: `Enter ${minimum} or more.` };
  if (maximum !== undefined && value > maximum) return { error: `Enter ${maximum} or less.` };
  return { value };
}

function readList(
  { choices, minItems = 0, maxItems, isRequired }: ListField,
  texts: readonly string[],
): FieldAnswer {
  const chosen = [...new Set(texts.filter((text) => text !== ''))];
  if (chosen.length === 0 && !isRequired) return undefined;
  if (chosen.length < minItems) return { error: `Choose at least ${minItems}.` };
  if (chosen.length > (maxItems ?? choices.length))
    return { error: `Choose at most ${maxItems ?? choices.length}.` };
  const found = chosen.flatMap((text) => choices[indexIn(text)] ?? []);
  return found.length < chosen.length ? { error: ONE_LISTED } : { value: found.map(({ value }) => value) };
}

/** The place of a choice, as a form gives it; -1 for what is no place. */
function indexIn(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : -1;
}

// --- formats ---

/**
 * The formats of a text in an elicitation, as the SDKs' validators take them, each in linear time. The caller's check
 * by the whole schema has the last word; these give the field its own sentence.
 */

interface Format {
  isMet(text: string): boolean;
  /** What to do where it is not met. */
  readonly advice: string;
}

const ATOM = /^[\w!#$%&'*+/=?^`{|}~-]+$/;
const LABEL = /^[a-z\d](?:[a-z\d-]*[a-z\d])?$/i;
/** RFC 3986: a scheme, then the characters of a URI. */
const URI = /^[a-z][a-z\d+.-]*:(?:[\w.~:/?#[\]@!$&'()*+,;=-]|%[\da-f]{2})+$/i;
/** RFC 3339, section 5.6, without leap seconds. */
const DATE_TIME =
  /^(\d{4}-\d\d-\d\d)t(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

const FORMATS: Readonly<Record<TextFormat, Format>> = {
  email: { isMet: isEmail, advice: 'Enter an email address, such as ann@example.com.' },
  uri: {
    isMet: (text) => URI.test(text) && URL.canParse(text),
    advice: 'Enter a whole URL, such as https://example.com/page.',
  },
  date: { isMet: isDate, advice: 'Enter a date as year, month and day, such as 2026-01-31.' },
  'date-time': {
    isMet: (text) => isDate(DATE_TIME.exec(text)?.[1] ?? ''),
    advice: 'Enter a date and time with its zone, such as 2026-01-31T14:00:00+02:00.',
  },
};

function isEmail(text: string): boolean {
  const [local = '', domain = '', ...more] = text.split('@');
  const labels = domain.split('.');
  const isLocal = local.split('.').every((atom) => ATOM.test(atom));
  return more.length === 0 && isLocal && labels.length > 1 && labels.every((label) => LABEL.test(label));
}

function isDate(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  const date = new Date(`${text}T00:00:00Z`);
  // V8 reads 30 February as 2 March.
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text);
}
