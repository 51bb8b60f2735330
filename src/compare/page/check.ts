/** Checks of a schema that no control of a browser makes. */
import type { Fields } from './json.tsx';

/** What a control holds, or what is wrong with it. */
export type FieldRead = { readonly value: unknown } | { readonly mistake: string };

/** RFC 3339, section 5.6. */
const DATE_TIME = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;

export function checkedValue(value: unknown, schema: Fields): FieldRead {
  const mistake =
    typeof value === 'string'
      ? inText(value, schema)
      : typeof value === 'number'
        ? inNumber(value, schema)
        : inStructure(value, schema);
  return mistake === undefined ? { value } : { mistake };
}

function inText(text: string, { format }: Fields): string | undefined {
  if (format !== 'date-time' || (DATE_TIME.test(text) && !Number.isNaN(Date.parse(text)))) return undefined;
  return 'This must be a date and time with its zone, such as 2026-01-31T12:00:00Z.';
}

function inNumber(
  value: number,
  { exclusiveMinimum, exclusiveMaximum, multipleOf }: Fields,
): string | undefined {
  if (typeof exclusiveMinimum === 'number' && value <= exclusiveMinimum)
    return `This must be more than ${exclusiveMinimum}.`;
  if (typeof exclusiveMaximum === 'number' && value >= exclusiveMaximum)
    return `This must be less than ${exclusiveMaximum}.`;
  if (typeof multipleOf !== 'number' || Number.isInteger(value / multipleOf)) return undefined;
  return `This must be a multiple of ${multipleOf}.`;
}

function inStructure(value: unknown, { type, minItems, maxItems, uniqueItems }: Fields): string | undefined {
  const isList = Array.isArray(value);
  if (type === 'array' && !isList) return 'This must be a list, such as ["a"].';
  if (type === 'object' && (isList || typeof value !== 'object' || value === null))
    return 'This must be an object, such as {"a": 1}.';
  if (!isList) return undefined;
  if (typeof minItems === 'number' && value.length < minItems) return `Choose at least ${minItems}.`;
  if (typeof maxItems === 'number' && value.length > maxItems) return `Choose at most ${maxItems}.`;
  const isRepeated = new Set(value.map((one) => JSON.stringify(one))).size < value.length;
  return uniqueItems === true && isRepeated ? 'No two of these may be the same.' : undefined;
}
