/** The recorded values of `Date`, `Math.random` and the like (`mcp-await/record`), as a journal keeps them. */

export type DrawnValue = number | string;

/** Values by the place they were drawn at, in their order there. */
export type DrawnValues = Readonly<Record<string, readonly DrawnValue[]>>;

/** Merges a checkpoint's values with those of the entries after it. */
export function addDrawn(
  drawn: DrawnValues | undefined,
  more: DrawnValues | undefined,
): { drawn?: DrawnValues } {
  if (drawn === undefined || more === undefined) {
    const either = drawn ?? more;
    return either === undefined ? {} : { drawn: either };
  }
  const sum = new Map(Object.entries(drawn).map(([key, values]) => [key, [...values]]));
  for (const [key, values] of Object.entries(more)) appendDrawn(sum, key, values);
  return { drawn: Object.fromEntries(sum) };
}

export function appendDrawn(to: Map<string, DrawnValue[]>, key: string, values: readonly DrawnValue[]): void {
  const known = to.get(key);
  if (known === undefined) to.set(key, [...values]);
  else known.push(...values);
}
