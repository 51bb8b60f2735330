/** Turns of the event loop, counted from now on until `stop`. */
export function countTurns(): { readonly now: number; stop(): void } {
  let [now, isOver] = [0, false];
  const count = (): void => {
    now += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  return {
    get now() {
      return now;
    },
    stop: () => {
      isOver = true;
    },
  };
}

/** How often the most frequent of some turns is among them. */
export function mostInOne(turns: readonly number[]): number {
  const each = new Map<number, number>();
  for (const turn of turns) each.set(turn, (each.get(turn) ?? 0) + 1);
  return Math.max(0, ...each.values());
}
