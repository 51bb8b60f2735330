/**
 * What of an ask a page can show whole. A person must not accept what they cannot read, so an ask that has no room on
 * its page, or whose arguments have none, can be declined and cancelled alone. Sizes are counted before anything is
 * built: the indentation of nested arrays, and the HTML of many fields, are far larger than their JSON.
 */
import type { JsonObject } from '../../base/values.ts';
import { formOf } from './form.ts';
import { LONGEST, shownOf } from './html.ts';

/** Room of all forms of a page, in characters as they are shown. */
const FORMS = 300_000;
/** What the HTML of a form, a field and a choice takes of it, besides their texts. */
const FORM = 1_000;
const FIELD = 300;
const CHOICE = 60;

/** An ask's question and its schema. */
export interface AskText {
  readonly key: string;
  readonly message: string;
  readonly schema: JsonObject;
}

/** Indented where that is short enough, else compact, else cut. */
export function shownArguments(args: JsonObject): { readonly text: string; readonly isCut: boolean } {
  const compact = shownOf(JSON.stringify(args), LONGEST);
  if (compact.isCut || indentedLength(compact.text) > LONGEST) return compact;
  return shownOf(JSON.stringify(args, null, 2), LONGEST);
}

/** The keys of the asks that can be accepted on their page. */
export function readableAsks(args: JsonObject, asks: readonly AskText[]): ReadonlySet<string> {
  const readable = new Set<string>();
  if (shownArguments(args).isCut) return readable;
  let room = FORMS;
  const texts = asks.map(({ key, message, schema }) => ({
    key,
    schema,
    text: JSON.stringify([message, schema]),
  }));
  // The first that has no room is the last that is counted.
  for (const { key, schema, text } of texts.sort((a, b) => a.text.length - b.text.length)) {
    room -= sizeOf(text, schema);
    if (room < 0) break;
    readable.add(key);
  }
  return readable;
}

/** Of a form as it is shown; infinite for one that is too long to be counted. @param json of its texts */
function sizeOf(json: string, schema: JsonObject): number {
  const { text, isCut } = shownOf(json, LONGEST);
  if (isCut) return Infinity;
  const fields = formOf(schema);
  const choices = fields.reduce((sum, field) => sum + ('choices' in field ? field.choices.length : 0), 0);
  return text.length + FORM + fields.length * FIELD + choices * CHOICE;
}

/** Of compact JSON with an indentation of two: more than `LONGEST` where it is more than that. */
function indentedLength(json: string): number {
  let length = 0;
  let depth = 0;
  let isInText = false;
  for (let at = 0; at < json.length && length <= LONGEST; at += 1) {
    const character = json[at];
    length += 1;
    if (character === '"') isInText = !isInText;
    if (isInText && character === '\\') {
      at += 1;
      length += 1;
    }
    if (isInText || character === '"') continue;
    if (character === '[' || character === '{') depth += 1;
    if (character === ']' || character === '}') depth -= 1;
    if (character === ':') length += 1;
    else if (character !== undefined && '[]{},'.includes(character)) length += 1 + 2 * depth;
  }
  return length;
}
