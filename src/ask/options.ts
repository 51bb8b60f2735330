/** The option `ask`: the page on which a person answers whose client cannot be asked. */
import { badOption, isObject, type JsonObject, optionError } from '../base/values.ts';
import type { Authorized } from './waiting-calls.ts';

/** Who a request to the page is from. */
export type Person = string | { readonly person: string; readonly roles?: readonly string[] };

/** What happened on the page, without content. */
export interface AskEvent {
  readonly what: 'opened' | 'answered' | 'expired';
  /** Who may answer, as `person` named them. */
  readonly person: string;
  /** The page of the ask. */
  readonly url: string;
  readonly tool: string;
  /** Milliseconds since the epoch. */
  readonly time: number;
}

/** The option `ask`: where the page is, who a request to it is from, and who may answer. */
export interface PageOptions {
  /** The URL under which the handler serves the page; `https` outside of loopback. */
  readonly page: string;
  /**
   * Who a request to the page is from, as the login of your service says: a name, `{ person, roles }`, or a `Response`
   * that sends the browser to that login. Undefined refuses it.
   * @param ask `url`: the page to come back to
   */
  readonly authorize: (
    request: Request,
    ask: { readonly url: string },
  ) => Person | Response | undefined | Promise<Person | Response | undefined>;
  /** The name of the person who may answer a caller's asks, as `authorize` returns it; undefined where there is none. */
  readonly person: (authInfo: JsonObject | undefined) => string | undefined;
  /** Called with what happens, for a notification of your own. What it throws is logged. */
  readonly on?: (event: AskEvent) => void | Promise<void>;
}

const MEMBERS: readonly string[] = ['page', 'authorize', 'person', 'on'];

/** @throws AwaitError `bad-option`; the message says what to write instead */
export function checkAsk(ask: PageOptions, has: { readonly secrets: boolean; readonly store: boolean }): URL {
  const unknown = isObject(ask) ? Object.keys(ask).find((name) => !MEMBERS.includes(name)) : 'ask';
  if (unknown !== undefined) throw badOption('ask', `has ${unknown}; there are ${MEMBERS.join(', ')}`);
  for (const name of ['authorize', 'person', 'on'] as const) {
    if (name === 'on' && ask.on === undefined) continue;
    if (typeof ask[name] !== 'function')
      throw badOption(`ask.${name}`, 'must be a function: without it the page cannot know who answers');
  }
  if (!has.secrets) throw badOption('ask', 'needs secrets: the links to its pages are sealed with them');
  if (!has.store)
    throw badOption('ask', "needs a store: with state: 'sealed' alone an answer has nowhere to wait");
  return pageOf(ask.page);
}

function pageOf(page: unknown): URL {
  const url = typeof page === 'string' && URL.canParse(page) ? new URL(page) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.href !== url.origin + url.pathname)
    throw badOption(
      'ask.page',
      'must be a URL such as https://mcp.example.com/ask, without user, query and fragment',
    );
  if (url.protocol === 'http:' && !isLoopbackUrl(url))
    throw badOption('ask.page', 'must be https outside of loopback: a login and answers go over it');
  if (url.pathname === '/') throw badOption('ask.page', 'needs a path of its own, such as /ask');
  while (url.pathname.endsWith('/')) url.pathname = url.pathname.slice(0, -1);
  return url;
}

export function isLoopbackUrl({ hostname }: URL): boolean {
  return ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}

/** @throws AwaitError `bad-option` for a name that is none */
export function authorizedBy(person: unknown): Authorized | undefined {
  const { person: name, roles = [] } = isObject(person) ? person : { person };
  if (name === undefined || name === null || name === '') return undefined;
  const areNames = Array.isArray(roles) && roles.every((role) => typeof role === 'string' && role !== '');
  if (typeof name === 'string' && areNames) return { person: name, roles };
  throw optionError('ask.authorize must return a name, { person, roles }, or a Response');
}
