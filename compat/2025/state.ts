/**
 * What a session's client set since it began (its log level, its subscriptions), for the instances of all
 * processes: the requests that set it, appended beside the session on the store's one primitive. Each process
 * leads its own instance through those it has not seen, before it serves the session again.
 */
import { isObject, type JsonObject } from '../../src/call/json.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Services } from '../services.ts';

const SETS_STATE: ReadonlySet<string> = new Set([
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
]);
/** More than that many changes are a client's mistake. */
const MOST = 10_000;

export class SessionState {
  readonly #services: Services;
  readonly #name: string;
  readonly #expires: number;
  /** The position up to which this process's instance knows it. */
  #at = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(services: Services, name: string, expires: number) {
    this.#services = services;
    this.#name = name;
    this.#expires = expires;
  }

  /** Brings this process's instance up to what other processes were told. */
  catchUp(instance: HostInstance): Promise<void> {
    if (this.#services.store?.isShared !== true) return Promise.resolve();
    this.#last = this.#last.catch(() => {}).then(() => this.#catchUp(instance));
    return this.#last;
  }

  /** A request that this process's instance answered, for the others. */
  async record(instance: HostInstance, method: string, params: JsonObject): Promise<void> {
    const { store } = this.#services;
    if (!SETS_STATE.has(method) || store?.isShared !== true) return;
    while (this.#at < MOST) {
      await this.catchUp(instance);
      const at = this.#at + 1;
      if (!(await store.insert(this.#key(at), { method, params }, this.#expires))) continue;
      this.#at = Math.max(this.#at, at);
      return;
    }
  }

  async #catchUp(instance: HostInstance): Promise<void> {
    for (;;) {
      const found = await this.#services.store?.get(this.#key(this.#at + 1));
      if (!isObject(found) || typeof found.method !== 'string') return;
      this.#at += 1;
      const params = isObject(found.params) ? found.params : {};
      const id = `mcp-await-state-${this.#at}`;
      // What it refuses it refused where the client asked, too.
      await instance.request({ id, method: found.method, params }, {});
    }
  }

  #key(at: number): string {
    return `${this.#name}:state:${at}`;
  }
}
