/** A field of a form as HTML: its label, its hints, what was wrong with it, and its control. */
import type { Choice, ChoiceField, Field, ListField } from './field.ts';
import { controlName } from './form.ts';
import { type Html, html, readable } from './html.ts';

/** More choices than these are a menu. */
const MOST_RADIOS = 10;
/** Texts that may be longer have several lines, in characters. */
const LINE = 200;

export interface FieldState {
  /** Unique in the page. */
  readonly id: string;
  /** What the form has under the field's name. */
  readonly texts: readonly string[];
  readonly error: string | undefined;
}

export function fieldControl(field: Field, { id, texts, error }: FieldState): Html {
  const notes = [
    { id: `${id}-hint`, kind: 'hint', text: field.description },
    { id: `${id}-limits`, kind: 'hint', text: limitsOf(field) },
    { id: `${id}-warning`, kind: 'warning', text: isSensitive(field.name, field) ? WARNING : undefined },
    { id: `${id}-error`, kind: 'error', text: error && `Error: ${error}` },
  ].filter(({ text }) => text !== undefined);
  const described = notes.length > 0 && html` aria-describedby="${notes.map((note) => note.id).join(' ')}"`;
  const hints = notes.map(
    (note) => html`<p class="${note.kind}" id="${note.id}" dir="auto">${readable(note.text ?? '')}</p>\n`,
  );
  const title = html`<bdi>${readable(field.title)}</bdi>${!field.isRequired && ' (optional)'}`;
  if (field.kind === 'list' || (field.kind === 'choice' && field.choices.length <= MOST_RADIOS)) {
    return html`<fieldset class="field"${described}>
<legend>${title}</legend>
${hints}${choiceBoxes(field, id, texts)}</fieldset>
`;
  }
  if (field.kind === 'unsupported') {
    return html`<div class="field" id="${id}">
<p><strong>${title}</strong></p>
${hints}<p>This page cannot ask for this: its schema is none that a form of MCP may have.</p>
</div>
`;
  }
  const shared = html` id="${id}" name="${controlName(field)}"${field.isRequired && html` required`}${
    error !== undefined && html` aria-invalid="true"`
  }${described}`;
  return html`<div class="field">
<label for="${id}">${title}</label>
${hints}${field.kind === 'choice' ? menu(field, shared, texts) : entry(field, shared, texts[0] ?? '')}
</div>
`;
}

const WARNING =
  'This looks like a password, a key or a card number. A server must not ask for such in a form. Do not enter it: decline instead.';

function entry(field: Exclude<Field, ChoiceField | ListField>, shared: Html, text: string): Html {
  // A browser would drop what is no number; the server says what is wrong with it.
  if (field.kind !== 'text') return html`<input type="text"${shared} value="${text}">`;
  // A text area loses a first line that is empty, but for this one.
  const { format, maxLength = 0 } = field;
  const isLong = format === undefined && (maxLength > LINE || text.includes('\n'));
  if (isLong) return html`<textarea rows="5"${shared}>\n${text}</textarea>`;
  return html`<input type="${TYPES[format ?? 'date-time']}"${shared} value="${text}">`;
}

/** No browser's control has a date with the zone of its time. */
const TYPES = { email: 'email', uri: 'url', date: 'date', 'date-time': 'text' } as const;

function menu({ choices, isRequired }: ChoiceField, shared: Html, texts: readonly string[]): Html {
  const chosen = new Set(texts);
  return html`<select${shared}>
<option value="">${isRequired ? 'Choose one' : 'No answer'}</option>
${choices.map(
  ({ title }, index) =>
    html`<option value="${index}"${chosen.has(String(index)) && html` selected`}>${readable(title)}</option>\n`,
)}</select>`;
}

/** Radio buttons, or boxes where several may be chosen. */
function choiceBoxes(field: ChoiceField | ListField, id: string, texts: readonly string[]): Html[] {
  const isOne = field.kind === 'choice';
  const type = isOne ? 'radio' : 'checkbox';
  const required = isOne && field.isRequired && html` required`;
  const chosen = new Set(texts);
  const box = ({ title }: Pick<Choice, 'title'>, value: string, at: string): Html => {
    const checked = (chosen.has(value) || (value === '' && texts.length === 0)) && html` checked`;
    return html`<label class="choice"><input type="${type}" id="${at}" name="${controlName(field)}" value="${value}"${required}${checked}><bdi>${readable(title)}</bdi></label>\n`;
  };
  const boxes = field.choices.map((choice, index) =>
    box(choice, String(index), index === 0 ? id : `${id}-${index}`),
  );
  return isOne && !field.isRequired ? [...boxes, box({ title: 'No answer' }, '', `${id}-none`)] : boxes;
}

/** The limits of a field in words. */
function limitsOf(field: Field): string | undefined {
  switch (field.kind) {
    case 'text': {
      if (field.format === 'date-time') return 'Date and time with its zone, such as 2026-01-31T12:00:00Z.';
      return rangeOf(field.minLength || undefined, field.maxLength, 'Characters: ');
    }
    case 'number':
      return rangeOf(field.minimum, field.maximum, field.isInteger ? 'A whole number: ' : 'A number: ');
    case 'list':
      return rangeOf(field.minItems || undefined, field.maxItems, 'Choose: ');
    default:
      return undefined;
  }
}

function rangeOf(least: number | undefined, most: number | undefined, before: string): string | undefined {
  if (least !== undefined && most !== undefined)
    return `${before}${least === most ? `exactly ${least}` : `${least} to ${most}`}.`;
  if (least !== undefined) return `${before}at least ${least}.`;
  return most === undefined ? undefined : `${before}at most ${most}.`;
}

// --- fields that look like secrets ---

/** Which fields seem to ask for a secret, which no server may ask for in a form (MCP 2025-11-25, elicitation). */

const WORDS = [
  'pass ?(?:word|phrase|code)s?',
  'passwd|pwd',
  'secrets?',
  'token',
  '(?:api|access|private|secret|encryption|recovery) ?keys?',
  'credentials?',
  'pin',
  'cvv2?|cvc2?|csc|card (?:verification|security) (?:code|value|number)|security code',
  '(?:credit|debit|bank|payment)? ?card (?:no|nr|num|number)',
  '(?:credit|debit|bank|payment) cards?',
  'otp|totp|(?:one time|verification|2fa|mfa) (?:code|password|pin)',
  'ssn|social security (?:no|number)',
];
const SENSITIVE = new RegExp(`\\b(?:${WORDS.join('|')})\\b`);

/**
 * Whether a field looks like a password, a key or a card number, by its name, title and description. Choices do not:
 * the server knows their values.
 */
export function isSensitive(name: string, { kind, title, description = '' }: Field): boolean {
  if (kind === 'choice' || kind === 'list') return false;
  return [name, title, description].some((text) => SENSITIVE.test(words(text)));
}

/** `apiKey`, `API_KEY` and `API-Key` as `api key`. */
function words(text: string): string {
  return text
    .replaceAll(/(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-.]+/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .toLowerCase();
}
