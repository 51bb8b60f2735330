/**
 * The page over HTTP. Each request is authorized anew, and sees the calls of its person alone: any other call is as
 * unknown as one that never was. A GET changes nothing; a POST comes from the page itself (`Origin`) with the token of
 * the form that it was given.
 */
import {
  AwaitError,
  defined,
  hasCode,
  isObject,
  type JsonObject,
  LoopTurns,
  nextTurn,
  objectOf,
  SHARE,
  textOf,
} from '../base/values.ts';
import { type AnswerCheck, isLate } from '../call/ask/answer.ts';
import { roleOf } from '../call/frame/place.ts';
import type { CallRecord, OpenAsk } from '../call/journal/entries.ts';
import type { Sealer } from '../checkpoint/sealed.ts';
import { countedAddress } from '../doors/http/address.ts';
import type { BeginBody } from '../doors/http/bodies.ts';
import type { Inbound, Reply } from '../doors/http/exchange.ts';
import type { Logger } from '../observe/logger.ts';
import { authorizedBy } from './options.ts';
import { STYLE_HASH } from './page/document.ts';
import { readForm } from './page/form.ts';
import { beginningOf } from './page/html.ts';
import { askPage, LISTED, type ListedAsk, listPage, notePage, type Submitted } from './page/pages.ts';
import { type AskText, readableAsks } from './page/whole.ts';
import type { AskSettings, PageAsks } from './page-asks.ts';
import { type Authorized, expiryOf, isForm, type WaitsFor } from './waiting-calls.ts';

/** Asks that the list shows. */
const MOST_LISTED = 200;
/** Longest form, in bytes. */
export const FORM_BYTES = 262_144;
const ACTIONS: readonly string[] = ['accept', 'decline', 'cancel'];
const FORM_TYPE = /^application\/x-www-form-urlencoded\s*(;|$)/i;

/** Of each page. */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src ${STYLE_HASH}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'`,
  'cache-control': 'no-store',
  // A form of a page without any referrer has no origin either.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

const DONE = [
  'A task, or an assistant that waits for your answer, goes on by itself.',
  'Else go back to your assistant and say that you have answered: the call goes on once it is made again. Until then nothing is done with your answer.',
];

const TOO_LATE = ['It was answered before, or its time is over. What you sent now does not count.'];

const ANEW = ['Open the link again, and answer on its page.'];

const SIGNED_OUT = ['Your answer was not taken. Open this link, sign in, and answer again.'];

const NOT_NOW = 'This page cannot be shown now';

const BUSY = ['Wait until they are shown, and try again.'];

const UNKNOWN = ['It was answered, has expired, or is for somebody else. Ask your assistant to try again.'];

const OTHERS = ['It needs an answer by somebody else, who finds it in their list, or under this link.'];

export interface PageParts {
  readonly settings: AskSettings;
  readonly asking: PageAsks;
  readonly sealer: Sealer;
  readonly check: AnswerCheck;
  readonly logger: Logger;
  readonly now: () => number;
  /** Whether there are secrets to open a link with. */
  readonly ready: () => boolean | Promise<boolean>;
  /** A link that is none came: for the limit of bad tokens. */
  readonly guessed: (inbound: Inbound) => Promise<unknown> | undefined;
}

/** An ask's call, as its person sees it. */
interface Shown {
  readonly call: CallRecord;
  readonly waits: WaitsFor;
  /** Without answers, and for this person. */
  readonly open: readonly OpenAsk[];
  /** Whether no ask of the call is for somebody else, or for its client. */
  readonly isAll: boolean;
  /** Whether somebody with another role has to answer. */
  readonly isOthers: boolean;
}

export class AskPage {
  readonly #parts: PageParts;
  readonly #path: string;
  readonly #turns = new PageTurns();
  readonly #requests = new LoopTurns();

  constructor(parts: PageParts) {
    this.#parts = parts;
    this.#path = parts.settings.url.pathname;
  }

  /** @returns undefined for a path that is not the page's */
  serve(inbound: Inbound, begin: BeginBody): Promise<Reply> | undefined {
    const { base, path } = inbound;
    const whole = base + (path === '/' && base !== '' ? '' : path);
    if (whole !== this.#path && !whole.startsWith(`${this.#path}/`)) return undefined;
    return this.#serve(inbound, whole.slice(this.#path.length + 1), begin).catch((error: unknown) => {
      const { message, code } = AwaitError.from(error);
      if (code === 'limit')
        return note(503, 'There is no room for this answer', [
          'Shorten it, or try again once other calls have ended.',
        ]);
      this.#parts.logger.error('the page of an ask failed', { code, error: message });
      return note(500, NOT_NOW, ['Something failed. Try again in a minute.']);
    });
  }

  async #serve(inbound: Inbound, id: string, begin: BeginBody): Promise<Reply> {
    const { method } = inbound;
    if (!['GET', 'HEAD', 'POST'].includes(method) || (method === 'POST' && id === ''))
      return { status: 405, headers: { allow: id === '' ? 'GET, HEAD' : 'GET, HEAD, POST' } };
    const { settings, ready } = this.#parts;
    // Read while the request waits: Node keeps a hundred bytes for each piece of a body that nobody has read.
    const reading = method === 'POST' ? formIn(inbound, begin) : undefined;
    reading?.catch(() => {});
    await this.#requests.next(SHARE, countedAddress(inbound));
    if (!(await ready())) return note(503, NOT_NOW, ['Its secrets cannot be had. Try again in a minute.']);
    const url = id === '' ? settings.url.href : `${settings.url.href}/${id}`;
    const authorized = await settings.authorize(inbound.request(), { url });
    // By what it has: servers replace the global class, whose static functions make the runtime's.
    if ('arrayBuffer' in Object(authorized)) {
      const response = authorized as Response;
      // Browsers follow no form to another site from here (`form-action`).
      if (method === 'POST' && response.headers.has('location'))
        return note(403, 'You are signed out', SIGNED_OUT, settings.url.href);
      return replyTo(response);
    }
    const who = authorizedBy(authorized);
    if (who === undefined)
      return note(403, 'You are not signed in', ['Sign in to this service, and open the link again.']);
    if (id === '') return this.#inTurn(who, () => this.#list(who));
    const { person } = who;
    const callId = await this.#callIdIn(id, inbound);
    const find = async (): Promise<Shown | undefined> =>
      callId === undefined ? undefined : this.#find(callId, who);
    // Where there is no such call of this person, the reply is the same as where there is no such call.
    const unknown = (): Reply => note(404, 'There is no such question', UNKNOWN, settings.url.href);
    if (method !== 'POST')
      return this.#inTurn(who, async () => {
        const shown = await find();
        if (shown !== undefined) return this.#show(shown, url, person);
        // What was answered just now may be over already.
        const isAnswered = await this.#isToken(inbound.query('answered'), { id: callId ?? '' }, '', person);
        return isAnswered ? note(200, 'This was answered', DONE, settings.url.href) : unknown();
      });
    const refused = this.#refused(inbound);
    // Before its turn, which no slow form may hold.
    const form = refused === undefined ? await reading : undefined;
    return this.#inTurn(who, async () => {
      const shown = await find();
      return shown === undefined ? unknown() : (refused ?? this.#answer(form, shown, url, person));
    });
  }

  async #inTurn({ person }: Authorized, serve: () => Promise<Reply>): Promise<Reply> {
    return (await this.#turns.take(person, serve)) ?? note(429, 'You opened too many pages at once', BUSY);
  }

  async #callIdIn(link: string, inbound: Inbound): Promise<string | undefined> {
    const { sealer, guessed } = this.#parts;
    const opened = await sealer.open('ask', link).catch((): JsonObject => ({}));
    if (typeof opened.id === 'string') return opened.id;
    await guessed(inbound);
    return undefined;
  }

  async #find(callId: string, who: Authorized): Promise<Shown | undefined> {
    const { calls } = this.#parts.asking;
    const waits = await calls.waitsFor(callId);
    if (waits === undefined) return undefined;
    const isTheirs = waits.person === who.person;
    // To those who have no role of it, and are not the caller's person, there is no such call.
    if (!isTheirs && who.roles.length === 0) return undefined;
    const standing = await calls.standing(callId);
    if (standing.kind !== 'asks') return undefined;
    const { call, open: all } = standing.checkpoint;
    const now = this.#parts.now();
    const open = all.filter((ask) => !isLate(ask, now));
    if (call.expires <= now || open.length === 0) return undefined;
    const isAnswerable = ({ params }: OpenAsk): boolean => {
      const role = roleOf(params);
      return role === undefined ? isTheirs : who.roles.includes(role);
    };
    const theirs = open.filter(isAnswerable);
    if (!isTheirs && theirs.length === 0) return undefined;
    // A turn that has begun with some answers leaves the other asks open.
    const asks = await this.#unanswered(callId, theirs);
    const isOthers = asks.length === 0 && (await this.#unanswered(callId, open)).length > 0;
    const isAll = theirs.filter(isForm).length === open.length;
    return { call, waits, open: asks, isAll, isOthers };
  }

  async #unanswered(callId: string, open: readonly OpenAsk[]): Promise<OpenAsk[]> {
    const { calls } = this.#parts.asking;
    const forms = open.filter(isForm);
    const answers = await Promise.all(forms.map(({ key }) => calls.answerTo(callId, key)));
    return forms.filter((_ask, nth) => answers[nth] === undefined);
  }

  async #list(who: Authorized): Promise<Reply> {
    const { asking } = this.#parts;
    const groups = new Map<string, { server: string; tool: string; asks: ListedAsk[] }>();
    let room = MOST_LISTED;
    // Of each call the beginning is kept before the next one is read.
    for await (const id of asking.calls.of(who)) {
      await nextTurn();
      const found = await this.#find(id, who);
      if (!found?.open.length) continue;
      const { call, waits, open } = found;
      const [server = '', tool = ''] = [waits.server, String(call.params.name)].map((name) =>
        beginningOf(name, LISTED),
      );
      const name = JSON.stringify([server, tool]);
      const group = groups.get(name) ?? { server, tool, asks: [] };
      groups.set(name, group);
      group.asks.push(...listed(found, room));
      room -= open.length;
      if (room < 0) break;
    }
    return page(200, listPage({ person: who.person, groups: [...groups.values()], hasMore: room < 0 }));
  }

  async #show(shown: Shown, url: string, person: string, given?: Submitted): Promise<Reply> {
    const { call, open, waits, isOthers } = shown;
    const { settings, asking } = this.#parts;
    const list = settings.url.href;
    if (isOthers) return note(200, 'This waits for somebody else', OTHERS, list);
    if (open.length === 0) return note(200, 'This was answered', DONE, list);
    if (await asking.calls.isStopped(call.id)) {
      const text = [
        'The client has stopped this call. It takes an answer again once the call is made again.',
      ];
      return note(409, 'Stopped by the client', text, list);
    }
    const view = {
      server: waits.server,
      tool: String(call.params.name),
      client: nameOfClient(call),
      asked: call.created,
      expires: expiryOf(call.expires, open),
      args: argumentsOf(call),
      asks: open.map(askText),
      action: url,
      tokens: Object.fromEntries(open.map(({ key }) => [key, this.#tokenOf(call, key, person)])),
      list,
      ...defined({ given }),
    };
    return page(given === undefined ? 200 : 422, askPage(view));
  }

  /** A POST of another page, or of a program that a browser does not run. */
  #refused(inbound: Inbound): Reply | undefined {
    const { origin } = this.#parts.settings.url;
    if (
      inbound.header('origin') !== origin ||
      !['same-origin', undefined].includes(inbound.header('sec-fetch-site'))
    )
      return note(403, 'This form was sent from elsewhere', ANEW);
    if (inbound.parsedBody === undefined && !FORM_TYPE.test(inbound.header('content-type') ?? ''))
      return note(415, 'This is not the form of the page', ANEW);
    return undefined;
  }

  async #answer(
    formOf: (() => URLSearchParams) | undefined,
    shown: Shown,
    url: string,
    person: string,
  ): Promise<Reply> {
    const { asking, now, check, settings } = this.#parts;
    const { call, open, waits } = shown;
    const list = settings.url.href;
    if (formOf === undefined)
      return note(413, 'This answer is too long', ['Shorten it, and send it again.'], list);
    const form = formOf();
    const key = form.get('key') ?? '';
    const action = form.get('action') ?? '';
    if (!(await this.#isToken(form.get('token') ?? '', call, key, person)) || !ACTIONS.includes(action))
      return note(
        403,
        'This form cannot be used',
        ['It is old, or of another page. Open the link again.'],
        list,
      );
    const ask = open.find((one) => one.key === key);
    if (ask === undefined) return note(409, 'This is closed', TOO_LATE, list);
    if (await asking.calls.isStopped(call.id)) return this.#show(shown, url, person);
    let result: JsonObject = { action };
    if (action === 'accept') {
      if (!readableAsks(argumentsOf(call), open.map(askText)).has(key))
        return note(403, 'This cannot be accepted here', ['It is too long to be shown whole.'], list);
      const read = readForm(schemaOf(ask.params), form);
      if ('errors' in read) return this.#show(shown, url, person, { key, form, errors: read.errors });
      if (!check.keeps(schemaOf(ask.params), read.content)) {
        const errors = { '': 'The server does not take this answer. Check each field.' };
        return this.#show(shown, url, person, { key, form, errors });
      }
      result = { action, content: read.content };
    }
    const given = { response: { result }, by: person, route: 'page', time: now() } as const;
    if (!(await asking.calls.answer(call, ask, given))) return note(409, 'This is closed', TOO_LATE, list);
    asking.tell('answered', { ...waits, tool: String(call.params.name) });
    if (shown.isAll && open.length === 1) asking.settled(call.id);
    // A page that is loaded again sends no form again.
    return {
      status: 303,
      headers: { ...PAGE_HEADERS, location: `${url}?answered=${this.#tokenOf(call, '', person)}` },
    };
  }

  #tokenOf({ id, expires }: CallRecord, key: string, person: string): string {
    return this.#parts.sealer.seal('ask', { form: id, key, person }, expires);
  }

  async #isToken(
    token: string | undefined,
    { id }: Pick<CallRecord, 'id'>,
    key: string,
    person: string,
  ): Promise<boolean> {
    const opened = await this.#parts.sealer.open('ask', token).catch((): JsonObject => ({}));
    return same(opened, { form: id, key, person });
  }
}

function listed({ call, waits, open }: Shown, most: number): ListedAsk[] {
  const args = beginningOf(JSON.stringify(argumentsOf(call)), LISTED);
  const client = beginningOf(nameOfClient(call), LISTED);
  return open.slice(0, most).map(({ params }) => ({
    href: waits.url,
    message: beginningOf(messageOf(params), LISTED),
    client,
    asked: call.created,
    expires: expiryOf(call.expires, open),
    args,
  }));
}

function askText({ key, params }: OpenAsk): AskText {
  return { key, message: messageOf(params), schema: schemaOf(params) };
}

function nameOfClient({ client: { info } }: CallRecord): string {
  return [info.title ?? info.name ?? 'unknown', info.version].filter((part) => part !== undefined).join(' ');
}

function messageOf({ message }: JsonObject): string {
  return textOf(message ?? '');
}

function argumentsOf({ params: { arguments: args } }: CallRecord): JsonObject {
  return objectOf(args);
}

function schemaOf({ requestedSchema }: JsonObject): JsonObject {
  return objectOf(requestedSchema);
}

function same(one: JsonObject, other: JsonObject): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function page(status: number, body: string): Reply {
  return { status, headers: PAGE_HEADERS, body };
}

function note(status: number, title: string, text: readonly string[], list?: string): Reply {
  return page(status, notePage({ title, text, ...defined({ list }) }));
}

/** @returns reads it, in its page's turn; undefined for one that is too long */
async function formIn(inbound: Inbound, begin: BeginBody): Promise<(() => URLSearchParams) | undefined> {
  const { parsedBody } = inbound;
  if (isObject(parsedBody)) {
    // A parser in front has read it; a field that came twice is an array.
    const pairs = Object.entries(parsedBody).flatMap(([name, value]) =>
      (Array.isArray(value) ? value : [value]).map((one) => [name, String(one)]),
    );
    return () => new URLSearchParams(pairs);
  }
  try {
    const text = await inbound.text(FORM_BYTES, begin);
    return () => new URLSearchParams(text);
  } catch (error) {
    if (hasCode(error, 'limit')) return undefined;
    throw error;
  }
}

async function replyTo(response: Response): Promise<Reply> {
  // Of a login that was fetched the body is decoded.
  const {
    'set-cookie': _,
    'transfer-encoding': _sent,
    'content-encoding': _coded,
    'content-length': _long,
    ...headers
  }: Record<string, string> = Object.fromEntries(response.headers);
  const cookies = response.headers.getSetCookie();
  return { status: response.status, headers, cookies, body: await response.text() };
}

// --- turns of the event loop for pages ---

/**
 * Pages in turn. The page serves few requests at a time, one for each person, and lets other requests run between two
 * of them. Persons take turns, so that the many pages that one person opens do not delay another person's.
 */

/** Pages that are read and written at the same time. */
const MOST_PAGES = 4;
/** Pages of one person that may wait. */
const MOST_WAITING = 32;

export class PageTurns {
  /** The persons of the pages that are being made. */
  readonly #served = new Set<string>();
  /** Those who wait, the next one first; each with the pages that they wait for. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @returns undefined where too many pages of this person wait */
  async take<T>(person: string, serve: () => Promise<T>): Promise<T | undefined> {
    const pages = this.#waiting.get(person) ?? [];
    if (pages.length === MOST_WAITING) return undefined;
    this.#waiting.set(person, pages);
    await new Promise<void>((resolve) => {
      pages.push(resolve);
      this.#begin();
    });
    try {
      await nextTurn();
      return await serve();
    } finally {
      this.#served.delete(person);
      this.#begin();
    }
  }

  #begin(): void {
    for (const [person, pages] of this.#waiting) {
      if (this.#served.size === MOST_PAGES) return;
      if (this.#served.has(person)) continue;
      this.#served.add(person);
      pages.shift()?.();
      // Behind all others.
      this.#waiting.delete(person);
      if (pages.length > 0) this.#waiting.set(person, pages);
    }
  }
}
