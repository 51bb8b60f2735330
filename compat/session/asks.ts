/**
 * A server's asks outside of calls, on its session's standing stream. An ask is recorded before it goes out, so that
 * its answer may arrive at any process; the answer is in the store before its 202, and the asking process fetches it
 * there. Answers to a server that has ended are dropped.
 */
import { randomUUID } from 'node:crypto';
import { isObject, type JsonObject } from '../../src/base/json.ts';
import { isOddUrlAsk, ODD_URL } from '../../src/base/web-url.ts';
import type { AskProgress } from '../../src/call/frame/turn.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import type { AskMessage } from '../../src/host/router.ts';
import type { Services } from '../services.ts';
import { listening } from './start.ts';

type Send = (message: JsonObject) => void;

interface Asked {
  readonly settle: (response: Response) => void;
  readonly progress: AskProgress | undefined;
}

export class SessionAsks {
  readonly #services: Services;
  readonly #name: string;
  readonly #expires: number;
  /** By the ask's id on the wire. */
  readonly #open = new Map<string, Asked>();
  readonly #sending = new Set<Promise<void>>();

  constructor(services: Services, name: string, expires: number) {
    this.#services = services;
    this.#name = `${name}:asks`;
    this.#expires = expires;
  }

  /** Resolves when it is answered, if ever. */
  ask({ method, params, progress }: AskMessage, send: Send): Promise<Response> {
    const { logger, limits } = this.#services.settings;
    if (isOddUrlAsk(method, params))
      return Promise.resolve({ error: { code: -32602, message: `Invalid params: ${ODD_URL}` } });
    if (this.#open.size >= limits.asks) {
      logger.warn('a server has too many open asks in its session; the ask stays pending', { method });
      return new Promise(() => {});
    }
    const id = randomUUID();
    const answered = new Promise<Response>((settle) => this.#open.set(id, { settle, progress }));
    const own = progress === undefined ? params : listening(isObject(params) ? params : {}, id);
    const sent = this.#noted(id).then(
      () => send({ jsonrpc: '2.0', id, method, ...(isObject(own) && { params: own }) }),
      (error: unknown) =>
        logger.warn('an ask could not be recorded; it stays pending', { error: String(error) }),
    );
    this.#sending.add(sent);
    void sent.finally(() => this.#sending.delete(sent));
    return answered;
  }

  /** Resolves once the asks so far are sent; undefined where they are. */
  get sending(): Promise<unknown> | undefined {
    return this.#sending.size === 0 ? undefined : Promise.all(this.#sending);
  }

  /** The client's response; false when nothing of this session asked it. */
  async answer(id: string, response: Response): Promise<boolean> {
    if (this.#settle(id, response)) return true;
    const { store, engine } = this.#services;
    const noted = store?.isShared === true ? await store.get(this.#key(id)) : undefined;
    if (!isObject(noted)) return false;
    await store?.deliver(this.#name, id, response, this.#expires);
    await engine.wake(this.#name, typeof noted.by === 'string' ? noted.by : undefined);
    return true;
  }

  /** The client's progress; false when nothing of this session asked it, or listens. */
  async report(id: string, params: JsonObject): Promise<boolean> {
    const asked = this.#open.get(id);
    asked?.progress?.report(params);
    if (asked !== undefined) return asked.progress !== undefined;
    const { store, engine } = this.#services;
    const noted = store?.isShared === true ? await store.get(this.#key(id)) : undefined;
    if (!isObject(noted) || noted.listens !== true) return false;
    await engine.reportTo(this.#name, id, params, this.#expires);
    await engine.wake(this.#name, typeof noted.by === 'string' ? noted.by : undefined);
    return true;
  }

  /** The asking server is closed. */
  close(): void {
    this.#open.clear();
  }

  #settle(id: string, response: Response): boolean {
    const asked = this.#open.get(id);
    this.#open.delete(id);
    asked?.settle(response);
    return asked !== undefined;
  }

  async #noted(id: string): Promise<void> {
    const { store, engine } = this.#services;
    if (store?.isShared !== true) return;
    await store.insert(
      this.#key(id),
      { ...(engine.name !== undefined && { by: engine.name }), ...(this.#listens(id) && { listens: true }) },
      this.#expires,
    );
    const waiting = {
      callId: this.#name,
      waits: (asked: string) => this.#open.has(asked),
      answer: async (asked: string, response: Response) => void this.#settle(asked, response),
      listens: (asked: string) => this.#listens(asked),
      report: (asked: string, params: JsonObject) => this.#open.get(asked)?.progress?.report(params),
    };
    engine.expect(waiting, id);
  }

  #listens(id: string): boolean {
    return this.#open.get(id)?.progress !== undefined;
  }

  #key(id: string): string {
    return `${this.#name}:${id}`;
  }
}
