/** Puts the messages of several columns side by side: one row for messages with the same role. */
import type { Column } from '../play.ts';
import type { WireMessage } from '../wire.ts';

/** The messages of one row, by column; a column may have none. */
export interface AlignedRow {
  readonly cells: readonly (WireMessage | undefined)[];
}

/** The rows of one step. The second ask of one column is beside the second ask of the others. */
export function rowsOf(
  columns: readonly Column[],
  step: number,
  isShown: (message: WireMessage) => boolean,
): AlignedRow[] {
  const order: string[] = [];
  const cells = new Map<string, (WireMessage | undefined)[]>();
  for (const [lane, { messages }] of columns.entries()) {
    const counts = new Map<string, number>();
    let after = -1;
    for (const message of messages) {
      if (message.step !== step) continue;
      const nth = (counts.get(message.kind) ?? 0) + 1;
      counts.set(message.kind, nth);
      if (!isShown(message)) continue;
      const key = `${message.kind} ${nth}`;
      const place = order.indexOf(key);
      // A part that comes earlier here than in the columns before keeps the place that it has there.
      if (place === -1) {
        order.splice(after + 1, 0, key);
        after += 1;
      } else after = Math.max(after, place);
      const row = cells.get(key) ?? columns.map(() => undefined);
      row[lane] = message;
      cells.set(key, row);
    }
  }
  return order.map((key) => ({ cells: cells.get(key) ?? [] }));
}

/** The message that one is compared with: the nearest in its row, first to the left. */
export function neighbourOf({ cells }: AlignedRow, lane: number): WireMessage | undefined {
  const left = cells.slice(0, lane).findLast((cell) => cell !== undefined);
  return left ?? cells.slice(lane + 1).find((cell) => cell !== undefined);
}
