/**
 * Which era a server is of, found by its first request: one way to speak with it is tried, and if the server refuses
 * that, the other. What was found is kept for the servers that are started later.
 */
import type { JsonObject } from '../base/values.ts';
import type { LinkEvents, OpenLink, PeerLink } from './link.ts';

/** The option `upstream`: the revision that the server behind the proxy is spoken to in. */
export type UpstreamOption = 'auto' | '2025-11-25' | '2026-07-28';

export const UPSTREAMS = ['auto', '2025-11-25', '2026-07-28'] as const;

type Era = Exclude<UpstreamOption, 'auto'>;

/** How a server of an era is reached. */
export type EraWay = readonly [Era, OpenLink];

export class Upstream {
  readonly #option: UpstreamOption;
  #found: Era | undefined;

  constructor(option: UpstreamOption) {
    this.#option = option;
  }

  /** What it is, if that is known. */
  get era(): Era | undefined {
    return this.#option === 'auto' ? this.#found : this.#option;
  }

  /** @param ways the way to speak each era, the one that is tried first in front */
  open(ways: readonly EraWay[]): OpenLink {
    return (events) => {
      const wanted = ways.filter(([era]) => this.#option === 'auto' || era === this.#option);
      const known = wanted.filter(([era]) => era === this.#found);
      return new EraLink([...known, ...wanted.filter((way) => !known.includes(way))], events, (era) => {
        this.#found = era;
      });
    };
  }
}

class EraLink implements PeerLink {
  readonly #events: LinkEvents;
  readonly #ways: readonly EraWay[];
  readonly #found: (era: Era) => void;
  #link: PeerLink;
  /** Whether the ways before were refused for good. */
  #isSure = true;
  /** The `initialize` that is out, while another way is left. */
  #first: JsonObject | undefined;

  constructor(ways: readonly EraWay[], events: LinkEvents, found: (era: Era) => void) {
    this.#ways = ways;
    this.#events = events;
    this.#found = found;
    this.#link = this.#open(0);
  }

  get isConcurrent(): boolean {
    return this.#link.isConcurrent === true;
  }

  send(message: JsonObject): void {
    if (message.method === 'initialize') this.#first = message;
    this.#link.send(message);
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  kill(reason?: string): void {
    this.#link.kill(reason);
  }

  #open(at: number): PeerLink {
    const [era, open] = this.#ways[at] as EraWay;
    let isLeft = false;
    const link = open({
      message: (message, about) => {
        if (isLeft) return;
        const first = this.#first;
        if (first === undefined || message.method !== undefined || message.id !== first.id) {
          this.#events.message(message, about);
          return;
        }
        if (message.error !== undefined && this.#ways[at + 1] !== undefined) {
          isLeft = true;
          this.#isSure = message.unpassed !== true;
          void link.close();
          this.#link = this.#open(at + 1);
          this.#link.send(first);
          return;
        }
        this.#first = undefined;
        if (message.error === undefined && this.#isSure) this.#found(era);
        this.#events.message(message, about);
      },
      ended: (reason, how) => isLeft || this.#events.ended(reason, how),
      lost: (...lost) => isLeft || this.#events.lost?.(...lost),
    });
    return link;
  }
}
