/**
 * What happens to the calls of a live play, in order: which process runs the tool, where it waits, what a replay takes
 * from the journal, who dies, and what each process logs. It is made of the journal's entries as they are written.
 */

import { isObject } from '../base/values.ts';
import type { Completion, Entry, OpenAsk } from '../call/journal/entries.ts';
import { questionOf } from './user.ts';

/** One line of the sequence. */
export interface Happening {
  /** The process it happened in; empty for the client. */
  readonly process: string;
  readonly kind: 'runs' | 'waits' | 'journal' | 'step' | 'answer' | 'ended' | 'process' | 'effect' | 'log';
  readonly text: string;
}

/** Most lines of logs that are shown. */
const MOST = 500;

export class Sequence {
  readonly happenings: Happening[] = [];
  readonly #questions = new Map<string, string>();
  #printed = 0;
  /** What is in the journal of the call: a replay takes it from there. */
  #recorded: string[] = [];
  /** The process that runs the call, or where it waits. */
  #owner: string | undefined;
  readonly #onAdd: () => void;

  constructor(onAdd: () => void) {
    this.#onAdd = onAdd;
  }

  /** A request reached a process. */
  request(process: string, target: string): void {
    this.#recorded = [];
    this.#owner = process;
    this.add(process, 'runs', `runs ${target}`);
  }

  /** @param process the one that wrote the entry */
  entry(entry: Entry, process: string): void {
    switch (entry.type) {
      case 'asked':
        this.#ran(process);
        this.#ask(entry.ask);
        this.add(
          process,
          'waits',
          `asks “${this.#questions.get(entry.ask.key)}” and keeps the tool waiting here`,
        );
        break;
      case 'suspended': {
        this.#ran(process);
        const { completions, open } = entry.checkpoint;
        for (const ask of open) this.#ask(ask);
        for (const completion of completions) this.#complete(completion, process);
        const asked = open.map(({ key }) => `“${this.#questions.get(key)}”`).join(' and ');
        this.add(
          process,
          'waits',
          `asks ${asked || 'to be called again'}; the tool is parked in the journal`,
        );
        break;
      }
      case 'claimed':
        for (const answer of entry.answers) this.#complete(answer, process);
        this.#replay(process);
        break;
      case 'completed':
        if (entry.isReceived !== true) this.#ran(process);
        this.#complete(entry.completion, process);
        break;
      case 'ended':
        this.#ran(process);
        this.add(process, 'ended', 'ends the call');
        break;
      default:
    }
  }

  /** What a process logs, or prints. */
  print(process: string, text: string): void {
    for (const line of text.trimEnd().split('\n')) {
      this.#printed += 1;
      if (this.#printed <= MOST) this.add(process, 'log', line.slice(0, 500));
      else if (this.#printed === MOST + 1) this.add(process, 'log', 'Later lines are not shown.');
    }
  }

  add(process: string, kind: Happening['kind'], text: string): void {
    this.happenings.push({ process, kind, text });
    this.#onAdd();
  }

  /** An owner's entry of another process than before: that has taken the call over. */
  #ran(process: string): void {
    if (this.#owner !== undefined && this.#owner !== process) this.#replay(process);
  }

  #replay(process: string): void {
    this.#owner = process;
    this.add(process, 'runs', 'runs the tool again, from its start');
    for (const text of this.#recorded) this.add(process, 'journal', `${text} (from the journal)`);
  }

  #ask({ key, method, params }: OpenAsk): void {
    this.#questions.set(key, questionOf(method, params));
  }

  #complete(completion: Completion, process: string): void {
    // This package's own: a recorded fetch, a shed.
    if (completion.kind === 'step' && completion.path.startsWith('/')) return;
    const text =
      completion.kind === 'step'
        ? `step ${completion.path}`
        : `answer to “${this.#questions.get(completion.key)}”: ${saidIn(completion.response)}`;
    if (this.#recorded.includes(text)) return;
    this.#recorded.push(text);
    this.add(process, completion.kind, `${text}${completion.kind === 'step' ? ' is done' : ''}`);
  }
}

function saidIn(response: object): string {
  const result: unknown = 'result' in response ? response.result : undefined;
  if (!isObject(result)) return 'an error';
  return isObject(result.content)
    ? JSON.stringify(result.content).slice(0, 200)
    : String(result.action ?? 'given');
}
