/** The fields that the elicitation schemas of MCP 2025-06-18, 2025-11-25 and 2026-07-28 can have. */
import { isObject, type JsonObject, textOf } from '../../base/values.ts';

interface FieldText {
  readonly name: string;
  readonly title: string;
  readonly description: string | undefined;
  readonly isRequired: boolean;
  /** The schema's `default`, unchecked. */
  readonly initial: unknown;
}

export interface TextField extends FieldText {
  readonly kind: 'text';
  readonly format: TextFormat | undefined;
  /** In code points, as JSON Schema counts. */
  readonly minLength: number | undefined;
  readonly maxLength: number | undefined;
  readonly pattern: string | undefined;
}

export interface NumberField extends FieldText {
  readonly kind: 'number';
  readonly isInteger: boolean;
  readonly minimum: number | undefined;
  readonly maximum: number | undefined;
}

export interface Choice {
  readonly value: unknown;
  readonly title: string;
}

/** One of several values. A boolean is one: left alone, a checkbox would say "no" for a person who said nothing. */
export interface ChoiceField extends FieldText {
  readonly kind: 'choice';
  readonly choices: readonly Choice[];
}

export interface ListField extends FieldText {
  readonly kind: 'list';
  readonly choices: readonly Choice[];
  readonly minItems: number | undefined;
  readonly maxItems: number | undefined;
}

/** A schema that no revision allows in a form, such as an object in an object. */
interface UnsupportedField extends FieldText {
  readonly kind: 'unsupported';
}

export type Field = TextField | NumberField | ChoiceField | ListField | UnsupportedField;

const FORMATS = ['email', 'uri', 'date', 'date-time'] as const;
export type TextFormat = (typeof FORMATS)[number];

const YES_NO: readonly Choice[] = [
  { value: true, title: 'Yes' },
  { value: false, title: 'No' },
];

export function fieldOf(name: string, schema: JsonObject, isRequired: boolean): Field {
  const title = textIn(schema.title) ?? (name || '(no name)');
  const text = { name, title, description: textIn(schema.description), isRequired, initial: schema.default };
  const choices = choicesOf(schema);
  if (choices !== undefined) return { ...text, kind: 'choice', choices };
  switch (schema.type) {
    case 'boolean':
      return { ...text, kind: 'choice', choices: YES_NO };
    case 'string':
      return {
        ...text,
        kind: 'text',
        format: FORMATS.find((format) => format === schema.format),
        minLength: numberIn(schema.minLength),
        maxLength: numberIn(schema.maxLength),
        pattern: textIn(schema.pattern),
      };
    case 'integer':
    case 'number':
      return {
        ...text,
        kind: 'number',
        isInteger: schema.type === 'integer',
        minimum: numberIn(schema.minimum),
        maximum: numberIn(schema.maximum),
      };
    case 'array': {
      const listed = isObject(schema.items) ? choicesOf(schema.items) : undefined;
      if (listed === undefined) return { ...text, kind: 'unsupported' };
      const [minItems, maxItems] = [numberIn(schema.minItems), numberIn(schema.maxItems)];
      return { ...text, kind: 'list', choices: listed, minItems, maxItems };
    }
    default:
      return { ...text, kind: 'unsupported' };
  }
}

function choice(value: unknown, title: unknown): Choice {
  return { value, title: textIn(title) ?? (textOf(value) || '""') };
}

/** `enum`, with 2025-06-18's `enumNames`; or the titled choices of `oneOf`, in a list of `anyOf`. */
function choicesOf({ enum: values, enumNames, oneOf, anyOf }: JsonObject): readonly Choice[] | undefined {
  if (Array.isArray(values)) {
    return values.map((value: unknown, index) => choice(value, Array.isArray(enumNames) && enumNames[index]));
  }
  const titled: readonly unknown[] = [oneOf, anyOf].find(Array.isArray) ?? [];
  const choices = titled.flatMap((one) =>
    isObject(one) && one.const !== undefined ? [choice(one.const, one.title)] : [],
  );
  return choices.length > 0 ? choices : undefined;
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function numberIn(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
