/** A form made from a JSON Schema: of what a server asks, or of a tool's arguments. Mistakes are told at their field. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { checkedValue, type FieldRead } from './check.ts';
import type { Fields } from './json.tsx';

interface FormProps {
  readonly label: string;
  readonly schema: Fields;
  readonly values: Fields;
  readonly submit: string;
  /** Whether its first control takes the focus as it appears. */
  readonly takesFocus?: boolean;
  readonly onSubmit: (values: Fields) => void;
  /** What stands beside the button that submits it. */
  readonly children?: ComponentChildren;
}

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export function Form({ label, schema, values, submit, takesFocus, onSubmit, children }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  const [mistakes, setMistakes] = useState<Readonly<Record<string, string>>>({});
  useEffect(() => {
    if (takesFocus) form.current?.querySelector<HTMLElement>('input, select, textarea, button')?.focus();
  }, []);
  const fields = Object.entries(isFields(schema.properties) ? schema.properties : {});
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const submitted = (event: SubmitEvent): void => {
    event.preventDefault();
    const controls = [...(form.current?.querySelectorAll<Control>('[data-field]') ?? [])];
    const reads = fields.flatMap(([name, field]) => {
      const control = controls.find(({ dataset }) => dataset.field === name);
      return control === undefined
        ? []
        : [{ name, control, read: readControl(control, isFields(field) ? field : {}) }];
    });
    const wrong = reads.flatMap(({ name, read }) =>
      'mistake' in read ? [[name, read.mistake] as const] : [],
    );
    setMistakes(Object.fromEntries(wrong));
    reads.find(({ name }) => name === wrong[0]?.[0])?.control.focus();
    if (wrong.length > 0) return;
    const values = reads.flatMap(({ name, read }) => ('value' in read ? [[name, read.value] as const] : []));
    onSubmit(Object.fromEntries(values.filter(([, value]) => value !== undefined)));
  };
  return (
    <form ref={form} class="asked" aria-label={label} noValidate onSubmit={submitted}>
      {fields.map(([name, field]) => (
        <Field
          key={name}
          name={name}
          schema={isFields(field) ? field : {}}
          value={values[name] ?? (isFields(field) ? field.default : undefined)}
          isRequired={required.has(name)}
          mistake={mistakes[name]}
        />
      ))}
      <p class="buttons">
        <button type="submit">{submit}</button> {children}
      </p>
    </form>
  );
}

interface FieldProps {
  readonly name: string;
  readonly schema: Fields;
  readonly value: unknown;
  readonly isRequired: boolean;
  readonly mistake: string | undefined;
}

function Field({ name, schema, value, isRequired, mistake }: FieldProps) {
  const id = useId();
  const hints = [
    ...(typeof schema.description === 'string' ? [`${id}-hint`] : []),
    ...(mistake === undefined ? [] : [`${id}-mistake`]),
  ];
  const shared = {
    id,
    // No `name`: a control that is called `elements` would take the place of the form's own member.
    'data-field': name,
    required: isRequired,
    'aria-invalid': mistake !== undefined,
    ...(hints.length > 0 && { 'aria-describedby': hints.join(' ') }),
  };
  return (
    <p class="field">
      <label for={id}>
        {String(schema.title ?? name)}
        {isRequired ? '' : ' (optional)'}
      </label>
      <Entry schema={schema} value={value} shared={shared} />
      {typeof schema.description === 'string' && (
        <span class="hint" id={`${id}-hint`}>
          {schema.description}
        </span>
      )}
      {mistake !== undefined && (
        <span class="mistake" id={`${id}-mistake`} role="alert">
          {mistake}
        </span>
      )}
    </p>
  );
}

interface EntryProps {
  readonly schema: Fields;
  readonly value: unknown;
  readonly shared: { readonly id: string; readonly required: boolean };
}

function Entry({ schema, value, shared }: EntryProps) {
  const items = isFields(schema.items) ? schema.items : {};
  const isList = schema.type === 'array';
  const choices = choicesOf(isList ? items : schema);
  if (choices.length > 0) {
    const chosen = (isList && Array.isArray(value) ? value : [value]).map(String);
    return (
      <select {...shared} multiple={isList}>
        {!isList && !shared.required && <option value="">(none)</option>}
        {choices.map(([choice, title]) => (
          <option key={choice} value={choice} selected={chosen.includes(choice)}>
            {title}
          </option>
        ))}
      </select>
    );
  }
  switch (schema.type) {
    case 'boolean':
      // What nobody said is not sent as false.
      if (value === undefined && !shared.required)
        return (
          <select {...shared}>
            <option value="">(none)</option>
            <option value="true">yes</option>
            <option value="false">no</option>
          </select>
        );
      return <input {...shared} required={false} type="checkbox" defaultChecked={value === true} />;
    case 'integer':
    case 'number': {
      const bounds = { min: schema.minimum as number, max: schema.maximum as number };
      const step = schema.type === 'integer' ? 1 : 'any';
      return <input {...shared} {...bounds} type="number" step={step} defaultValue={value as number} />;
    }
    case 'string': {
      const limits = {
        minLength: schema.minLength as number,
        maxLength: schema.maxLength as number,
        pattern: schema.pattern as string,
      };
      const text = { ...shared, ...limits, defaultValue: value as string };
      if (schema.format === 'email') return <input {...text} type="email" />;
      if (schema.format === 'uri') return <input {...text} type="url" />;
      if (schema.format === 'date') return <input {...text} type="date" />;
      return <input {...text} type="text" />;
    }
    default:
      return <textarea {...shared} defaultValue={value === undefined ? '' : JSON.stringify(value)} />;
  }
}

/** What a control holds, as its schema has it, or what is wrong with it in the browser's words. */
function readControl(control: Control, schema: Fields): FieldRead {
  if (control.validationMessage !== '') return { mistake: control.validationMessage };
  const { type, items } = schema;
  if (control instanceof HTMLSelectElement && control.multiple) {
    const chosen = [...control.selectedOptions].map((option) =>
      choiceIn(isFields(items) ? items : {}, option.value),
    );
    // None of an optional list is no list.
    return chosen.length === 0 && !control.required ? { value: undefined } : checkedValue(chosen, schema);
  }
  if (control instanceof HTMLInputElement && control.type === 'checkbox') return { value: control.checked };
  if (control.value === '') return { value: undefined };
  if (control instanceof HTMLTextAreaElement) return jsonOf(control.value, schema);
  if (control instanceof HTMLSelectElement) {
    return { value: type === 'boolean' ? control.value === 'true' : choiceIn(schema, control.value) };
  }
  return checkedValue(
    type === 'integer' || type === 'number' ? Number(control.value) : control.value,
    schema,
  );
}

function jsonOf(text: string, schema: Fields): FieldRead {
  try {
    return checkedValue(JSON.parse(text), schema);
  } catch {
    return { mistake: 'This must be JSON, such as {"a": 1} or ["a"].' };
  }
}

/** A choice as its schema has it: not each is a text. */
function choiceIn({ enum: values, oneOf, anyOf }: Fields, text: string): unknown {
  const named = [oneOf, anyOf].find(Array.isArray) ?? [];
  const all: unknown[] = Array.isArray(values) ? values : named.map((one: Fields) => one.const);
  return all.find((value) => String(value) === text) ?? text;
}

function choicesOf({ enum: values, enumNames, oneOf, anyOf }: Fields): (readonly [string, string])[] {
  if (Array.isArray(values)) {
    const names = Array.isArray(enumNames) ? enumNames : values;
    return values.map((value, nth) => [String(value), String(names[nth] ?? value)]);
  }
  const named = Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : [];
  return named.flatMap((one) =>
    isFields(one) && one.const !== undefined
      ? [[String(one.const), String(one.title ?? one.const)] as const]
      : [],
  );
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
