/** The engine with one invariant broken on purpose: what the simulator must see. */

export interface Mutant {
  readonly name: string;
  readonly file: string;
  /** A text that occurs there once, and its replacement. */
  readonly from: string;
  readonly to: string;
  /** Seen for certain in the scenario that found it, and by chance in about one of ten thousand others. */
  readonly rare?: true;
  /** Seen where a person answers on the page. */
  readonly page?: true;
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'the claim is removed, where the frame is here',
    file: 'src/call/run/resume.ts',
    from: 'const isClaimed = await isAppended(run.journal, prepared.claim, () => {',
    to: 'const isClaimed = ((given: () => void) => [given(), true][1])(() => {',
  },
  {
    name: 'the claim is removed, where it is replayed',
    file: 'src/call/run/resume.ts',
    from: 'if (mustRead || !(await isAppended(journal, claim)))',
    to: 'if (mustRead)',
  },
  {
    name: 'a step is told before it is written',
    file: 'src/call/frame/step-runner.ts',
    from: "await journal.append({ type: 'completed', completion }, () => this.#onRecorded(step, completion));",
    to: "[this.#onRecorded(step, completion), journal.append({ type: 'completed', completion }).catch(() => {})];",
  },
  {
    name: 'a step of a live call begins before the call is written',
    file: 'src/call/frame/step-runner.ts',
    from: 'if (begun !== undefined) await begun;',
    to: 'void begun?.catch(() => {});',
  },
  {
    name: 'an outcome is told before it is written',
    file: 'src/call/run/checkpoints.ts',
    from: "await journal.append({ type: 'ended', response, when: this.#parts.clock.now() });",
    to: "void journal.append({ type: 'ended', response }).catch(() => {});",
  },
  {
    name: 'the lease is never checked by those who wait',
    file: 'src/call/journal/follow.ts',
    from: 'stopped() || ((await silence()) >= lease',
    to: 'stopped() || ((await silence()) >= 0',
  },
  {
    name: 'the lease is never checked by its owner',
    file: 'src/call/frame/step-runner.ts',
    from: 'while (journal.lapsed && !gate.isEnded)',
    to: 'while (gate.isEnded && journal.lapsed)',
  },
  {
    name: 'who waits counts the time that it slept itself',
    file: 'src/call/journal/silence.ts',
    from: 'return asked - this.#since;',
    to: 'return this.clock.elapsed() - this.#since;',
    rare: true,
  },
  {
    name: 'the gate is left open',
    file: 'src/call/frame/gate.ts',
    from: "  close(): void {\n    if (this.#state.at !== 'open') return;\n",
    to: '  close(): void {\n    if (this !== undefined) return;\n',
  },
  {
    name: 'nobody is fenced',
    file: 'src/call/journal/writer.ts',
    from: 'if (there === undefined || !isReceived(there))',
    to: 'if (there === undefined)',
  },
  {
    name: 'a long step beside the asks gives no sign of life',
    file: 'src/call/run/turns.ts',
    from: 'if (run.frame.busy) this.#ownership.beat(run);',
    to: '',
  },
  {
    name: 'a checkpoint overtakes the entry of a step',
    file: 'src/call/frame/frame.ts',
    from: 'if (this.#runner.isWriting) return;',
    to: '',
  },
  {
    name: 'what is inside of a step waits behind the gate',
    file: 'src/call/frame/frame.ts',
    from: 'else if (this.#runner.goOnInside()) this.#poke();',
    to: '',
  },
  {
    name: 'a step whose error cannot be read is not recorded',
    file: 'src/call/frame/steps.ts',
    from: '    return String(value);\n  } catch {\n    return undefined;',
    to: "    return String(value);\n  } catch {\n    throw new Error('unreadable');",
  },
  {
    name: 'a turn ends while a step of it runs',
    file: 'src/call/frame/step-runner.ts',
    from: 'return this.#steps.running.length > 0 || this.isWriting;',
    to: 'return false;',
  },
  {
    name: 'a step is released before the answers that were there first',
    file: 'src/call/frame/step-runner.ts',
    from: 'const isInside = this.isInsideRunning(step.path);',
    to: 'const isInside = true;',
    rare: true,
  },
  {
    name: 'a broken connection cancels a call that is being taken up',
    file: 'src/call/engine.ts',
    from: '      isStopped = true;',
    to: '      started.cancel();',
    rare: true,
  },
  {
    name: 'a connection that comes back skips an entry',
    file: 'src/stream/call-connections.ts',
    from: 'after.sequence - (after.nth === undefined ? 0 : 1)',
    to: 'after.sequence + 1',
  },
  {
    name: "a failed insert that was written counts as another process's",
    file: 'src/log/retry.ts',
    from: '(await insert()) || canonical(await read()) === canonical(value)',
    to: 'insert()',
  },
  {
    name: 'a failed operation of the store is not repeated',
    file: 'src/log/retry.ts',
    from: 'if (isOver()) throw error;',
    to: 'throw error;',
  },
  {
    name: 'an answer of the page overwrites the one before',
    file: 'src/ask/waiting-calls.ts',
    from: 'const isFirst = await this.#insert(call, answerName(call.id, ask.key), kept);',
    to: 'const isFirst = [true, await this.#parts.store.replace(answerName(call.id, ask.key), kept, call.expires)][0];',
    page: true,
  },
  {
    name: 'a call that its client stopped takes answers',
    file: 'src/ask/continued-call.ts',
    from: 'this.#isCancelled = !this.#asked.cancel();',
    to: 'this.#asked.cancel();',
    page: true,
  },
  {
    name: 'a call that comes again after it was stopped takes none',
    file: 'src/ask/asked.ts',
    from: 'if (isOpen || this.page.length > 0) await calls.resume(call);',
    to: '',
    page: true,
  },
  {
    name: 'an equal call begins anew',
    file: 'src/ask/continued-call.ts',
    from: 'const ids = await calls.equal(this.#request.call, this.#workspace);',
    to: 'const ids: string[] = [];',
    page: true,
  },
  {
    name: 'a step that ends beside the asks takes them off the page',
    file: 'src/ask/waiting-calls.ts',
    from: "entry.type === 'claimed' ? { ...before, claim: before.claim ?? entry } : before",
    to: '{ ...before, claim: { answers: [] } }',
    page: true,
  },
  {
    name: 'a process that has not the tool ends the call',
    file: 'src/call/frame/recording.ts',
    from: 'return !this.#isReached &&',
    to: 'return this.#isReached &&',
  },
  {
    name: 'a process that has not the tool ends the call that its person answered',
    file: 'src/call/frame/recording.ts',
    from: 'return !this.#isReached &&',
    to: 'return this.#isReached &&',
    page: true,
  },
  {
    name: 'an answer is taken in that nobody gave',
    file: 'src/ask/asked.ts',
    from: 'let outcome = isShared ? (await calls.answerTo(call.id, key))?.response : undefined;',
    to: "let outcome: Response | undefined = (await calls.answerTo(call.id, key))?.response ?? { result: { action: 'accept', content: { n: 'none' } } };",
    page: true,
  },
  {
    name: 'a client’s answer replaces one that the page has acknowledged',
    file: 'src/ask/asked.ts',
    from: 'if (isKept) sent?.stop.abort();',
    to: 'if (isKept && sent?.given === undefined) sent?.stop.abort();',
    page: true,
  },
  {
    name: 'an answer from elsewhere counts as a move of its owner, where that told of it in its sign of life',
    file: 'src/call/task/sweeper.ts',
    from: 'const hasMoved = found.at > known.at;',
    to: 'const hasMoved = found.at !== known.at;',
    rare: true,
  },
  {
    name: 'asks stay open behind the end',
    file: 'src/call/journal/fold.ts',
    from: 'this.response = response;\n    this.open.clear();',
    to: 'this.response = response;',
    rare: true,
  },
];
