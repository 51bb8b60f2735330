/** A person at the page, as a browser would be. */
const ORIGIN = 'http://127.0.0.1:1';
export const PAGE = `${ORIGIN}/ask`;

export const linkIn = (text: string): string => /http\S+/.exec(text)?.[0] ?? 'no link';

/**
 * A form as a browser sends it.
 * @param nth of the forms on the page
 */
export function filledForm(
  page: string,
  fields: Readonly<Record<string, string>> = {},
  action = 'accept',
  nth = 0,
): URLSearchParams {
  const hidden = (name: string): string =>
    [...page.matchAll(new RegExp(`name="${name}"[^>]*value="([^"]*)"`, 'g'))][nth]?.[1] ?? '';
  const entries = Object.entries(fields).map(([name, value]) => [`field.${name}`, value]);
  const all = [...entries, ['key', hidden('key')], ['token', hidden('token')], ['action', action]];
  return new URLSearchParams(all.map((entry) => entry.map((text) => text.replace(/\r\n?|\n/g, '\r\n'))));
}

export class PersonAtPage {
  readonly name: string;

  constructor(name = 'ann') {
    this.name = name;
  }

  /** The page's URL is a balancer's, which is not there. @param at the URL of a process */
  fetch(at: string, url: string, init: RequestInit = {}): Promise<Response> {
    const headers = { ...(init.headers as Record<string, string>), 'x-person': this.name };
    return fetch(url.replace(ORIGIN, new URL(at).origin), { redirect: 'manual', ...init, headers });
  }

  async read(at: string, url: string): Promise<string> {
    return (await this.fetch(at, url)).text();
  }

  /** @param nth of the forms on the page */
  async answer(
    at: string,
    url: string,
    fields: Readonly<Record<string, string>>,
    action = 'accept',
    nth = 0,
  ): Promise<Response> {
    return this.send(at, url, filledForm(await this.read(at, url), fields, action, nth));
  }

  send(at: string, url: string, body: URLSearchParams): Promise<Response> {
    return this.fetch(at, url, { method: 'POST', body, headers: { origin: ORIGIN } });
  }
}

/** Of a handler whose callers are their own persons. */
export const askOptions = {
  page: PAGE,
  authorize: (request: Request) => request.headers.get('x-person') ?? undefined,
  person: (authInfo: Readonly<Record<string, unknown>> | undefined) =>
    authInfo?.clientId as string | undefined,
};
