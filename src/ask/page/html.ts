/**
 * HTML from templates. Every text in a page is a stranger's: a server's question, a model's arguments, a client's name.
 * 1. A part of a template is escaped, unless it is HTML from another template.
 * 2. No character is there unseen, since it could make an argument read otherwise than the tool reads it.
 */
import { escapeMarkup } from '../../base/markup.ts';

export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a template may hold; `undefined` and `false` leave nothing. */
export type Part = Html | string | number | undefined | false | readonly Part[];

/**
 * @example html`<p title="${title}">${text}</p>`
 * Attributes must be in double quotes.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(String.raw({ raw: strings }, ...parts.map(markupOf)));
}

function markupOf(part: Part): string {
  if (part === undefined || part === false) return '';
  if (part instanceof Html) return part.text;
  return typeof part === 'object' ? part.map(markupOf).join('') : escapeMarkup(String(part));
}

/** Characters without a picture: they turn the direction of a text, have no width, or control a terminal. */
const UNSEEN = /(?![\t\n\r])[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;
/** The same without those that join emoji, and letters of Persian and Indic languages. */
const UNSEEN_IN_PROSE =
  /(?![\t\n\r\u200c]|\u200d|[\ufe0e\ufe0f])[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/** A text that is data, with every unseen character as its number: `<U+202E>`. */
export function visible(text: string): string {
  return text.replaceAll(UNSEEN, numberOf);
}

/** As `visible`, for a text that a person wrote to be read: a question, a title, a description. */
export function readable(text: string): string {
  return text.replaceAll(UNSEEN_IN_PROSE, numberOf);
}

function numberOf(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return `<U+${code.toString(16).toUpperCase().padStart(4, '0')}>`;
}
