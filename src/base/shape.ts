/** How deep a value is, and how many values it holds: what takes far more time or memory than its bytes. */

/** Deeper than any tool's arguments, and far from where recursion ends a process. */
export const MAX_DEPTH = 500;

export interface Shape {
  /** How many objects and arrays are inside of one another. */
  readonly depth: number;
  /** Members of objects and elements of arrays. */
  readonly values: number;
  /** Different names of members: each takes longer than a value, in many steps. */
  readonly names: number;
}

/**
 * The shape of a value, level by level, since recursion would overflow at the depths to refuse. It may stop above.
 * @param apart an object in it whose members do not count
 * @param names gets the names of its members; without it none are counted
 */
export function shapeOf(value: unknown, most: number, apart?: unknown, names?: Set<string>): Shape {
  let level: readonly unknown[] = [value];
  let values = 0;
  let depth = 0;
  for (; level.length > 0 && depth <= MAX_DEPTH; depth += 1) {
    const next: unknown[] = [];
    for (const one of level) {
      if (typeof one !== 'object' || one === null || one === apart) continue;
      const own = Array.isArray(one) ? undefined : Object.keys(one);
      if (names !== undefined) for (const name of own ?? []) names.add(name);
      values += (own ?? (one as unknown[])).length;
      // The values of very many names take as long as parsing them.
      if (values > most) return { depth, values, names: names?.size ?? 0 };
      for (const inner of Object.values(one)) if (typeof inner === 'object') next.push(inner);
    }
    level = next;
  }
  return { depth, values, names: names?.size ?? 0 };
}

/**
 * The shape of JSON before it is parsed; brackets and commas in strings do not count.
 * @param mostNames names are counted up to one more, as they are spelled
 */
export function shapeOfText(text: string, most: number, mostNames = 0): Shape {
  // So short a text is neither deep nor many values.
  if (text.length <= Math.min(MAX_DEPTH, most)) return { depth: 0, values: 0, names: 0 };
  const names = new Set<string>();
  let begin = 0;
  let end = 0;
  let depth = 0;
  let deepest = 0;
  // A value follows each comma, and each opening bracket; an empty object or array counts as one that holds a value.
  let values = 0;
  let inString = false;
  for (let index = 0; index < text.length; index += 1) {
    switch (text.charCodeAt(index)) {
      case 0x5c: // a backslash, and what it escapes
        if (inString) index += 1;
        break;
      case 0x22: // a quotation mark
        inString = !inString;
        if (inString) begin = index;
        else end = index;
        break;
      case 0x3a: // a colon
        // One that no string is before names nothing: JSON has none, and the same long text would be cut again and again.
        if (!inString && begin < end && names.size <= mostNames) names.add(text.slice(begin, end));
        if (!inString) end = begin;
        break;
      case 0x2c: // a comma
        if (!inString) values += 1;
        break;
      case 0x7b: // { and [
      case 0x5b:
        if (inString) break;
        depth += 1;
        values += 1;
        deepest = Math.max(deepest, depth);
        break;
      case 0x7d: // } and ]
      case 0x5d:
        if (!inString) depth -= 1;
        break;
      default:
        break;
    }
    if (depth > MAX_DEPTH || values > 2 * most) break;
  }
  return { depth: deepest, values, names: names.size };
}
