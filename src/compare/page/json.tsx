/** JSON with what differs from another value marked. */
import type { ComponentChildren } from 'preact';

export type Fields = Readonly<Record<string, unknown>>;

interface JsonProps {
  readonly value: unknown;
  /** What it is compared with; `undefined` beside nothing. */
  readonly other: unknown;
  readonly isCompared: boolean;
  readonly depth?: number;
}

export function JsonView({ value, other, isCompared, depth = 0 }: JsonProps) {
  if (typeof value !== 'object' || value === null) {
    const text = JSON.stringify(value) ?? 'undefined';
    return isCompared && value !== other ? (
      <Marked>{text}</Marked>
    ) : (
      <span class={`json-${typeof value}`}>{text}</span>
    );
  }
  const isArray = Array.isArray(value);
  const [open, close] = isArray ? ['[', ']'] : ['{', '}'];
  const entries = Object.entries(value);
  if (entries.length === 0) return <span>{open + close}</span>;
  const others: Fields = typeof other === 'object' && other !== null ? (other as Fields) : {};
  const indent = '  '.repeat(depth + 1);
  return (
    <>
      {open}
      {entries.map(([name, inner], index) => {
        const isAlone = isCompared && !(name in others);
        const content = (
          <>
            {isArray ? null : <span class="json-key">{JSON.stringify(name)}: </span>}
            <JsonView
              value={inner}
              other={others[name]}
              isCompared={isCompared && !isAlone}
              depth={depth + 1}
            />
          </>
        );
        return (
          <span key={name}>
            {`\n${indent}`}
            {isAlone ? <Marked>{content}</Marked> : content}
            {index < entries.length - 1 ? ',' : ''}
          </span>
        );
      })}
      {`\n${'  '.repeat(depth)}${close}`}
    </>
  );
}

/** Marked for the eye by colour and line, for the ear by the role that `mark` has. */
function Marked({ children }: { readonly children: ComponentChildren }) {
  return <mark>{children}</mark>;
}

/** How many leaves differ: said beside the message. */
export function differingLeaves(value: unknown, other: unknown): number {
  if (typeof value !== 'object' || value === null) return value === other ? 0 : 1;
  const others: Fields = typeof other === 'object' && other !== null ? (other as Fields) : {};
  return Object.entries(value).reduce((sum, [name, inner]) => sum + differingLeaves(inner, others[name]), 0);
}
