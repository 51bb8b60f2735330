/**
 * The gate of a frame (invariant 2). It is open while a turn is entered; between turns the tool's messages and result
 * wait behind it; and once the call has ended here, nothing passes it.
 */
import { AwaitError, defined, type JsonObject, memoryOf } from '../../base/values.ts';
import type { Response } from '../journal/entries.ts';
import { runOutsideContext } from './context.ts';
import type { Turn } from './turn.ts';

/** Memory that the notifications of a closed gate may take, in bytes. */
const MOST_HELD = 4_194_304;

interface Behind {
  readonly notifications: JsonObject[];
  /** The tool's response, if it came meanwhile. */
  readonly response?: Response;
}

/** `finished`: the tool is done; `over`: the call has ended; `elsewhere`: it continues in another frame. */
type Why = 'finished' | 'over' | 'elsewhere';

type GateState =
  | ({ readonly at: 'closed' } & Behind)
  | {
      readonly at: 'open';
      readonly turn: Turn;
      /** Steps that were done in this turn. */
      steps: number;
      /** A response after which the tool is run again: waits until no step runs. */
      interim?: Response;
    }
  | {
      readonly at: 'ended';
      readonly why: Why;
      /** Whether steps of it were running, which run again elsewhere. */
      readonly isLost: boolean;
    };

type OpenGate = Extract<GateState, { at: 'open' }>;

export class Gate {
  #state: GateState = { at: 'closed', notifications: [] };
  readonly #maxHeld: number;
  /** The memory that notifications take which wait, in bytes. */
  #sizes: { readonly of: JsonObject[]; readonly each: number[] } = { of: [], each: [] };

  /** @param maxHeld notifications that wait behind it; the oldest are dropped */
  constructor(maxHeld: number) {
    this.#maxHeld = maxHeld;
  }

  /** The turn that is entered. */
  get turn(): Turn | undefined {
    return this.#open?.turn;
  }

  /** The state of the entered turn. */
  get #open(): OpenGate | undefined {
    return this.#state.at === 'open' ? this.#state : undefined;
  }

  get isEnded(): boolean {
    return this.#state.at === 'ended';
  }

  /** Whether the call has ended, and does not continue elsewhere. */
  get isOver(): boolean {
    return this.#state.at === 'ended' && this.#state.why !== 'elsewhere';
  }

  /** Whether the call ended with its tool's result: branches that the tool left running run on unrecorded. */
  get isFinished(): boolean {
    return this.#state.at === 'ended' && this.#state.why === 'finished';
  }

  get isLost(): boolean {
    return this.#state.at === 'ended' && this.#state.isLost;
  }

  /** Whether the tool's result waits behind it. */
  get isHolding(): boolean {
    return this.#state.at === 'closed' && this.#state.response !== undefined;
  }

  get stepsInTurn(): number {
    return this.#open?.steps ?? 0;
  }

  countStep(): void {
    if (this.#state.at === 'open') this.#state.steps += 1;
  }

  get interim(): Response | undefined {
    return this.#open?.interim;
  }

  /** The tool is done, and is run again once no step runs. */
  waitWith(interim: Response): void {
    if (this.#state.at === 'open') this.#state.interim = interim;
  }

  /** @returns everything that waited */
  enter(turn: Turn): Behind {
    const before = this.#state;
    if (before.at === 'ended')
      throw new AwaitError('internal', 'this frame was dropped; replay the call instead');
    this.#state = { at: 'open', turn, steps: 0 };
    return before.at === 'closed' ? before : { notifications: [] };
  }

  /** The turn has ended, or no request waits for it. */
  close(): void {
    if (this.#state.at !== 'open') return;
    const { interim: response } = this.#state;
    this.#state = { at: 'closed', notifications: [], ...defined({ response }) };
  }

  /** The first reason stays. @param isLost whether steps of it run again elsewhere */
  end(why: Why, isLost: boolean): void {
    const before = this.#state.at === 'ended' ? this.#state : { why, isLost };
    this.#state = { at: 'ended', why: before.why, isLost: before.isLost || isLost };
  }

  /** Behind the gate, open or ended, the response is the next turn's outcome. */
  hold(response: Response): void {
    const notifications = this.#state.at === 'closed' ? this.#state.notifications : [];
    this.#state = { at: 'closed', notifications, response };
  }

  notify(notification: JsonObject): void {
    const state = this.#state;
    if (state.at === 'open') {
      runOutsideContext(() => state.turn.notify(notification));
    } else if (state.at === 'closed') this.#hold(state.notifications, notification);
  }

  /** The oldest make room. */
  #hold(held: JsonObject[], notification: JsonObject): void {
    if (this.#sizes.of !== held) this.#sizes = { of: held, each: held.map(memoryOf) };
    const { each } = this.#sizes;
    held.push(notification);
    each.push(memoryOf(notification));
    let sum = each.reduce((all, one) => all + one, 0);
    while (held.length > this.#maxHeld || sum > MOST_HELD) {
      held.shift();
      sum -= each.shift() ?? 0;
    }
  }
}
