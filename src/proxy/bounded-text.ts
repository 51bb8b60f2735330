/** A response's body as text, where it is short. */

/** @returns undefined for a body of more than so many bytes, whose rest is not read */
export async function boundedText({ body }: Response, most: number): Promise<string | undefined> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body?.getReader();
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || value === undefined) return Buffer.concat(chunks).toString();
    size += value.length;
    if (size > most) {
      await reader?.cancel().catch(() => {});
      return undefined;
    }
    chunks.push(value);
  }
}
