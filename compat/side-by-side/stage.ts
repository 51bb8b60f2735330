/** The state that the sites of one play share, in all of their processes. */
import { randomBytes } from 'node:crypto';
import { AwaitError } from '../../src/base/error.ts';
import { memoryRelay } from '../../src/relay/memory.ts';
import { SharedStore } from './shared-store.ts';
import type { LogLine, Site } from './site.ts';

export class Stage {
  readonly store = new SharedStore();
  readonly relay = memoryRelay();
  readonly secret = randomBytes(32).toString('base64url');
  /** The log lines of its sites, in order. */
  readonly lines: LogLine[] = [];
  readonly #sites: Site[] = [];

  /** Closes the site when this is closed. */
  keep(site: Site): Site {
    this.#sites.push(site);
    return site;
  }

  /** The error of a failed client, with the reason that the server's process logged. */
  refused(revision: string, error: unknown): AwaitError {
    // A package that is not installed: its client was never made.
    if (error instanceof AwaitError && error.code === 'bad-option') return error;
    const logged = this.lines.findLast(({ level }) => level === 'error');
    const why =
      logged === undefined ? String(error) : `${logged.message} ${String(logged.detail.cause ?? '')}`.trim();
    return new AwaitError('bad-option', `no client can connect on ${revision}: ${why}`, error);
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#sites.map((site) => site.close()));
  }
}
