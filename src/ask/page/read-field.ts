/** Reads what a person entered into one field of a form. */
import { patternsOf } from '../../host/linear.ts';
import type { ChoiceField, Field, ListField, NumberField, TextField } from './field.ts';
import { FORMATS } from './format.ts';

/** A value of the schema's type, or what to do; undefined for a field that was left out. */
export type FieldAnswer = { readonly value: unknown } | { readonly error: string } | undefined;

const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;
const ONE_LISTED = 'Choose one of the listed values.';

/** @param texts what the form has under the field's name, unchecked */
export function readField(field: Field, texts: readonly string[]): FieldAnswer {
  if (field.kind === 'list') return readList(field, texts);
  const [text = '', ...more] = texts;
  if (more.length > 0) return { error: 'Give one value only.' };
  switch (field.kind) {
    case 'text':
      return readText(field, text);
    case 'number':
      return readNumber(field, text.trim());
    case 'choice':
      return readChoice(field, text);
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
  if (length < minLength) return { error: `Enter at least ${characters(minLength)}; this has ${length}.` };
  if (length > maxLength) return { error: `Enter at most ${characters(maxLength)}; this has ${length}.` };
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
  if (isInteger && !Number.isSafeInteger(value))
    return { error: `Enter a number of at most ${Number.MAX_SAFE_INTEGER}, without or with a minus sign.` };
  if (minimum !== undefined && value < minimum) return { error: `Enter ${minimum} or more.` };
  if (maximum !== undefined && value > maximum) return { error: `Enter ${maximum} or less.` };
  return { value };
}

function readChoice({ choices, isRequired }: ChoiceField, text: string): FieldAnswer {
  if (text === '') return isRequired ? { error: 'Choose one.' } : undefined;
  const choice = choices[indexIn(text)];
  return choice === undefined ? { error: ONE_LISTED } : { value: choice.value };
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

function characters(count: number): string {
  return count === 1 ? '1 character' : `${count} characters`;
}
