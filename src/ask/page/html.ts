/**
 * HTML from templates. Every text in a page is a stranger's: a server's question, a model's arguments, a client's name.
 * 1. A part of a template is escaped, unless it is HTML from another template.
 * 2. No character is there unseen, since it could make an argument read otherwise than the tool reads it.
 * 3. No text is longer than `LONGEST` as shown; one that is cut says so. Both in time that is linear in what is shown.
 */

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

/** Characters without a picture of their own: they turn the direction of a text, have no width, or control a terminal. */
const UNSEEN = unseenBut('');
/** The same without those that join emoji, and letters of Persian and Indic languages. */
const UNSEEN_IN_PROSE = unseenBut('\u200c\u200d\ufe0e\ufe0f');

/** Characters that are shown of a text at most. */
export const LONGEST = 200_000;
const CUT = '… (cut: the rest is not shown)';
/** Characters that are looked at in one go. */
const PIECE = 4_096;

function unseenBut(seen: string): RegExp {
  const unseen =
    '\\p{Cc}\\p{Zl}\\p{Zp}\\p{Cs}\\p{Default_Ignorable_Code_Point}\ufff9-\ufffb\u05c0\u05c3\u2800\u{1d159}';
  return new RegExp(`(?![\t\n\r${seen}])[${unseen}]`, 'gu');
}

/** A text that is data, with every unseen character as its number: `<U+202E>`. */
export function visible(text: string, most = LONGEST): string {
  return shownOf(text, most).text;
}

/** As `visible`, for a text that a person wrote to be read: a question, a title, a description. */
export function readable(text: string, most = LONGEST): string {
  return shownOf(text, most, UNSEEN_IN_PROSE).text;
}

/** What is shown of a text: at most so many characters, each number of an unseen one counted as it is shown. */
export function shownOf(
  text: string,
  most: number,
  unseen = UNSEEN,
): { readonly text: string; readonly isCut: boolean } {
  let shown = '';
  for (let at = 0; at < text.length; ) {
    const end = pieceEnd(text, at + PIECE);
    const piece = text
      .slice(at, end)
      .replaceAll(
        unseen,
        (one) => `<U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}>`,
      );
    const room = most - shown.length;
    if (piece.length > room)
      return { text: shown + piece.slice(0, pieceEnd(piece, room)) + CUT, isCut: true };
    shown += piece;
    at = end;
  }
  return { text: shown, isCut: false };
}

/** A copy of a text's first characters. A slice would keep the whole text in memory. */
export function beginningOf(text: string, most: number): string {
  if (text.length <= most) return text;
  return JSON.parse(JSON.stringify(text.slice(0, pieceEnd(text, most)) + CUT)) as string;
}

/** A place at which no character is split in two. */
function pieceEnd(text: string, at: number): number {
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff && at < text.length ? at - 1 : at;
}

/** Escapes text for XML and HTML: in an element, or in an attribute in double quotes. */
function escapeMarkup(text: string): string {
  return (
    text
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
      // XML 1.0 has no other control characters.
      .replaceAll(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd')
  );
}
