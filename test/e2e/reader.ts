import { expect } from 'vitest';
import { messagesIn, type Rpc } from './clients.ts';

/** The messages of a stream. */
export class Reader {
  readonly status: number;
  text = '';
  over = false;

  constructor(response: Response) {
    this.status = response.status;
    void this.#read(response.body?.pipeThrough(new TextDecoderStream()).getReader());
  }

  get messages(): Rpc[] {
    return messagesIn(this.text.slice(0, this.text.lastIndexOf('\n\n') + 2));
  }

  /** The id of the last event. */
  get last(): string {
    return [...this.text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
  }

  async next(wanted: (message: Rpc) => boolean): Promise<Rpc> {
    await expect.poll(() => this.messages.some(wanted)).toBe(true);
    return this.messages.find(wanted) as Rpc;
  }

  async #read(reader: ReadableStreamDefaultReader<string> | undefined): Promise<void> {
    try {
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
        if (done) break;
        this.text += value;
      }
    } catch {
      // Its process was killed.
    }
    this.over = true;
  }
}
