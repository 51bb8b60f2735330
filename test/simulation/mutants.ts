/** The engine with one invariant broken on purpose: what the simulator must see. */

export interface Mutant {
  readonly name: string;
  readonly file: string;
  /** Text that stands there once, and what is put in its place. */
  readonly from: string;
  readonly to: string;
  /** Seen for certain in the scenario that found it, and by chance in about one of ten thousand others. */
  readonly rare?: true;
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'the claim is removed, where the frame is here',
    file: 'src/call/resumption.ts',
    from: 'const isClaimed = await isAppended(run.journal, prepared.claim);',
    to: 'const isClaimed = true;',
  },
  {
    name: 'the claim is removed, where it is replayed',
    file: 'src/call/resumption.ts',
    from: 'if (mustRead || !(await isAppended(journal, claim)))',
    to: 'if (mustRead)',
  },
  {
    name: 'a step is told before it is written',
    file: 'src/call/frame.ts',
    from: "if (!this.#ended) await this.journal.append({ type: 'completed', completion });",
    to: "if (!this.#ended) void this.journal.append({ type: 'completed', completion }).catch(() => {});",
  },
  {
    name: 'an outcome is told before it is written',
    file: 'src/call/runs.ts',
    from: "await journal.append({ type: 'ended', response, when: this.#parts.clock.now() });",
    to: "void journal.append({ type: 'ended', response }).catch(() => {});",
  },
  {
    name: 'the lease is never checked by those who wait',
    file: 'src/call/contested.ts',
    from: '(await silence.lasts()) >= contest.lease',
    to: '(await silence.lasts()) >= 0',
  },
  {
    name: 'the lease is never checked by its owner',
    file: 'src/call/frame.ts',
    from: 'while (this.journal.lapsed && !this.#ended)',
    to: 'while (this.#ended && this.journal.lapsed)',
  },
  {
    name: 'who waits counts the time that it slept itself',
    file: 'src/call/contested.ts',
    from: 'return asked - this.#since;',
    to: 'return this.#clock.elapsed() - this.#since;',
    rare: true,
  },
  {
    name: 'the gate is left open',
    file: 'src/call/frame.ts',
    from: '  leave(): void {\n    this.#turn = undefined;\n',
    to: '  leave(): void {\n',
  },
  {
    name: 'nobody is fenced',
    file: 'src/call/open-journal.ts',
    from: 'if (!isOurs || ',
    to: 'if (position < -1 || ',
  },
  {
    name: 'a long step beside the asks gives no sign of life',
    file: 'src/call/runs.ts',
    from: 'if (run.frame.busy) this.#keepAlive(run);',
    to: '',
  },
  {
    name: 'a checkpoint overtakes the entry of a step',
    file: 'src/call/frame.ts',
    from: 'if (this.#writing > 0) return;',
    to: '',
  },
  {
    name: 'a claim in doubt gives way to other answers',
    file: 'src/call/open-journal.ts',
    from: "new Set(['claimed', 'suspended', 'ended'])",
    to: 'new Set([])',
    rare: true,
  },
  {
    name: 'what is inside of a step waits behind the gate',
    file: 'src/call/frame.ts',
    from: 'else this.#pumpInside();',
    to: '',
  },
];
