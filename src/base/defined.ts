type Given = NonNullable<unknown> | null;

/** The members that are not undefined: JSON, headers and `exactOptionalPropertyTypes` take a member or none. */
export function defined<T extends object>(members: T): { [K in keyof T]?: T[K] & Given } {
  const kept: { [K in keyof T]?: T[K] & Given } = {};
  for (const key in members) {
    const value = members[key];
    if (value !== undefined) kept[key] = value;
  }
  return kept;
}
