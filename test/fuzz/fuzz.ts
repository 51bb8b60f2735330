/**
 * Damages tokens at random and presents them: at the token layer each of them, and of every kind some over HTTP.
 * None may be accepted, none may touch the store, and all must be answered alike.
 */
import { setImmediate as breath } from 'node:timers/promises';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { randomOf } from '../fixtures/random.ts';
import { DAMAGES, type Damaged } from './damage.ts';
import {
  ask,
  authInfoOf,
  context,
  gather,
  inSession,
  type Material,
  type Token,
  type Wire,
} from './material.ts';

/** The outcome of a refused request, before it is written to a wire. */
const REFUSED = JSON.stringify({
  kind: 'responded',
  response: { error: BAD_TOKEN },
});
/** Tokens presented at once. */
const BATCH = 250;

export interface FuzzOptions {
  readonly tokens: number;
  readonly seed: number;
  /** How many of each kind go over HTTP as well. */
  readonly onWire: number;
  readonly progress?: (presented: number) => void;
}

export interface FuzzReport {
  readonly presented: number;
  readonly byDamage: ReadonlyMap<string, number>;
  readonly onWire: number;
  /** How often the store was touched by all of them. */
  readonly touched: number;
  readonly accepted: readonly string[];
  readonly different: readonly string[];
  readonly problems: readonly string[];
}

interface Case {
  readonly damage: string;
  readonly good: Token;
  readonly bad: Damaged;
}

export async function fuzz({ tokens, seed, onWire, progress }: FuzzOptions): Promise<FuzzReport> {
  const material = await gather();
  const random = randomOf(seed);
  const byDamage = new Map<string, number>([...DAMAGES.keys()].map((name) => [name, 0]));
  const accepted: string[] = [];
  const different: string[] = [];
  const problems: string[] = [];
  const next = (): Case => {
    for (;;) {
      const [damage, make] = random.pick(KINDS);
      const good = random.pick(material.tokens);
      const bad = make(good, random, material.tokens);
      if (bad === undefined || isGood(bad, material)) continue;
      byDamage.set(damage, (byDamage.get(damage) ?? 0) + 1);
      return { damage, good, bad };
    }
  };
  const before = material.touched();
  const reference = await references(material);
  let presented = 0;
  let wired = 0;
  while (presented < tokens) {
    const cases = Array.from({ length: Math.min(BATCH, tokens - presented) }, next);
    await Promise.all(
      cases.map(async (one) => {
        if (!(await isRefused(one, material))) accepted.push(told(one));
      }),
    );
    for (const one of cases) {
      if ((byDamage.get(one.damage) ?? 0) > onWire) continue;
      for (const [wanted, wire] of await wires(one, material, reference)) {
        wired += 1;
        if (JSON.stringify(wire) !== JSON.stringify(wanted)) different.push(`${told(one)}: ${wire.text}`);
      }
    }
    presented += cases.length;
    progress?.(presented);
    await breath();
  }
  const touched = material.touched() - before;
  for (const [damage, times] of byDamage) if (times === 0) problems.push(`no token had: ${damage}`);
  problems.push(...(await undamaged(material)));
  await material.close();
  return { presented, byDamage, onWire: wired, touched, accepted, different, problems };
}

const KINDS = [...DAMAGES];

/** A change may restore the token, or make another one that is valid as presented. */
function isGood({ token, binding, caller }: Damaged, { tokens }: Material): boolean {
  return binding === undefined && caller === undefined && tokens.some((good) => good.token === token);
}

async function isRefused({ good, bad }: Case, material: Material): Promise<boolean> {
  if (good.kind === 'session') {
    return (
      (await material.sessions.find(bad.token as string, {
        principal: principalOf(material, bad.caller ?? good.caller),
      })) === undefined
    );
  }
  const { engine } = material[good.kind];
  const outcome = await engine.resume(bad.token as string, bad.binding ?? good.binding, {}, context);
  if (outcome.kind !== 'responded') return false;
  const { kind, response } = outcome;
  return outcome.failure === 'bad-token' && JSON.stringify({ kind, response }) === REFUSED;
}

function principalOf({ stored }: Material, caller: string | undefined): string | undefined {
  return stored.principal(authInfoOf(caller));
}

interface References {
  readonly lean: Wire;
  readonly whole: Wire;
  readonly session: Wire;
}

/** What nonsense gets, on each of the ways that a request may go. */
async function references({ handlers, tokens }: Material): Promise<References> {
  const asking = tokens.flatMap((token) => (token.kind === 'stored' ? [token.asking] : []))[0];
  const session = await inSession(handlers.stored, 'nonsense');
  if (asking === undefined || session === undefined) throw new Error('there is nothing to compare with');
  const lean = await ask(handlers.stored, asking, 7, 'nonsense');
  const whole = await ask(handlers.stored, asking, 7, 'nonsense', true);
  if (JSON.stringify(lean.text) !== JSON.stringify(whole.text)) throw new Error('two ways, two replies');
  return { lean, whole, session };
}

async function wires({ good, bad }: Case, { handlers }: Material, to: References): Promise<[Wire, Wire][]> {
  if (good.kind === 'session') {
    const wire = await inSession(handlers.stored, bad.token, bad.caller ?? good.caller);
    return wire === undefined ? [] : [[to.session, wire]];
  }
  const asking = bad.asking ?? good.asking;
  const handler = handlers[good.kind];
  const lean = await ask(handler, asking, 7, bad.token);
  const whole = await ask(handler, asking, 7, bad.token, true);
  return [
    [to.lean, lean],
    [to.whole, whole],
  ];
}

/** Checks that an undamaged token is accepted and reaches the store; without that, refusals would mean nothing. */
async function undamaged(material: Material): Promise<string[]> {
  const problems: string[] = [];
  for (const good of material.tokens) {
    const before = material.touched();
    const refused = await isRefused({ damage: 'none', good, bad: { token: good.token } }, material);
    if (refused) problems.push(`a good ${good.kind} token is refused`);
    if (good.kind !== 'sealed' && material.touched() === before)
      problems.push(`a good ${good.kind} token needs no store`);
  }
  return problems;
}

function told({ damage, good, bad }: Case): string {
  return `${damage} (${good.kind}): ${String(JSON.stringify(bad.token)).slice(0, 300)}`;
}
