/** Drops the oldest entries of a Map or a Set, which keep the order of insertion, down to `most`. */
export function keepNewest<K>(
  kept: { readonly size: number; keys(): Iterable<K>; delete(key: K): boolean },
  most: number,
): void {
  for (const oldest of kept.keys()) {
    if (kept.size <= most) return;
    kept.delete(oldest);
  }
}
