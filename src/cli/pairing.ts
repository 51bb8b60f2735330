/**
 * `--ask-pair`: one person on one machine, who has no login. A code on the terminal is exchanged for a cookie and a
 * password.
 * 1. The code goes to `print` and nowhere else: no page, header or log line has it.
 * 2. It is good once, for ten minutes, and for five tries of all browsers together. After that no code is taken until
 *    the process is started again.
 * 3. The digests of both are kept, in the memory of this process, for twelve hours.
 * 4. A browser sends a cookie to every port of a host, so a process that serves another port of this machine can read
 *    it there. It sends a password of HTTP Basic to the origin alone that asked for it, so both are needed. The
 *    redirect after the form gives the browser its password; no person types one.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { documentOf } from '../ask/page/document.ts';
import { html, readable } from '../ask/page/html.ts';
import { notePage } from '../ask/page/pages.ts';
import { PAGE_HEADERS } from '../ask/serve.ts';
import type { Logger } from '../observe/logger.ts';

/** The principal of every caller, and the person who answers. */
export const LOCAL = 'local';

/** Crockford's base32: without I, L, O and U. */
const LETTERS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const CODE_LENGTH = 8;
const TRIES = 5;
/** How long the code is good, and then the cookie; in milliseconds. */
const CODE_TIME = 600_000;
const COOKIE_TIME = 43_200_000;
/** Longest form, in bytes. */
const FORM_BYTES = 8_192;
/** Of the password. */
const USER = 'paired';
const BASIC = 'Basic realm="mcp-await", charset="UTF-8"';

export interface PairingParts {
  readonly page: URL;
  /** Shows the code to the person. */
  readonly print: (code: string) => void;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
  readonly now?: () => number;
}

interface RefusedPage {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

export class Pairing {
  readonly #path: string;
  readonly #parts: PairingParts;
  /** The cookie's name. Servers on other ports of this machine, which get it too, keep theirs under other names. */
  readonly #name: string;
  readonly #now: () => number;
  /** Of the code; undefined before it is shown, and once it was used. */
  #code: Buffer | undefined;
  #codeEnds = 0;
  #tries = TRIES;
  /** `login`: the user's name and the password. */
  #paired: { readonly cookie: Buffer; readonly login: Buffer; readonly ends: number } | undefined;

  constructor(parts: PairingParts) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
    this.#path = `${parts.page.pathname}/pair`;
    this.#name = `mcp-await-pair-${parts.page.port || 'default'}`;
  }

  /** Where the form is posted to, and where the browser is given its password. */
  isFor({ url = '' }: { readonly url?: string | undefined }): boolean {
    return url.split('?', 1)[0] === this.#path;
  }

  /** Makes the code and prints it. */
  start(): void {
    // 32 letters divide 256, so each is as likely as any other.
    const code = [...randomBytes(CODE_LENGTH)].map((byte) => LETTERS[byte % 32]).join('');
    this.#code = digestOf(code);
    this.#codeEnds = this.#now() + CODE_TIME;
    this.#parts.print(`${code.slice(0, 4)}-${code.slice(4)}`);
  }

  /** `authorize` of the page. */
  readonly authorize = ({ headers }: Request, { url }: { readonly url: string }): string | Response => {
    const refused = this.#refused(url, headers.get('cookie') ?? '', headers.get('authorization') ?? '');
    if (refused === undefined) return LOCAL;
    return new Response(refused.body, refused);
  };

  #refused(url: string, cookies: string, authorization: string): RefusedPage | undefined {
    const paired = this.#pairedWith(cookies);
    if (paired === undefined) {
      return { status: 403, headers: PAGE_HEADERS, body: this.#isOpen() ? this.#form(url) : CLOSED };
    }
    const given = Buffer.from(/^basic +(\S+)$/i.exec(authorization)?.[1] ?? '', 'base64').toString();
    if (timingSafeEqual(paired.login, digestOf(given))) return undefined;
    return { status: 401, headers: { ...PAGE_HEADERS, 'www-authenticate': BASIC }, body: FORGOTTEN };
  }

  /** Takes the form of the pairing page. */
  async exchange(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method === 'GET') return this.#remembered(req, res);
    const reply = (status: number, body: string): void => {
      // The rest of a body that is too long is not read.
      if (!req.complete) res.shouldKeepAlive = false;
      res.writeHead(status, PAGE_HEADERS).end(body);
    };
    if (req.method !== 'POST') return void res.writeHead(405, { allow: 'GET, POST' }).end();
    const { page, logger } = this.#parts;
    const { origin, 'sec-fetch-site': site = 'same-origin' } = req.headers;
    // A page of another origin must not use up the tries.
    if (origin !== page.origin || site !== 'same-origin') return reply(403, FOREIGN);
    if (!(Number(req.headers['content-length']) <= FORM_BYTES)) return reply(413, FOREIGN);
    const form = new URLSearchParams(await text(req));
    const back = this.#backTo(form.get('back') ?? '');
    if (!this.#isOpen()) return reply(403, CLOSED);
    if (!this.#takes(form.get('code') ?? '')) {
      logger.warn('a pairing code was refused', { triesLeft: this.#tries });
      const left = this.#tries === 1 ? 'One try is' : `${this.#tries} tries are`;
      return reply(403, this.#isOpen() ? this.#form(back, `This is not the code. ${left} left.`) : CLOSED);
    }
    const [cookie, password] = [secret(), secret()];
    this.#paired = {
      cookie: digestOf(cookie),
      login: digestOf(`${USER}:${password}`),
      ends: this.#now() + COOKIE_TIME,
    };
    logger.info('a browser was paired');
    const attributes = [
      `${this.#name}=${cookie}`,
      `Path=${page.pathname}`,
      `Max-Age=${COOKIE_TIME / 1_000}`,
      'HttpOnly',
      'SameSite=Lax',
      // The page is on loopback, where it may have https of its own.
      ...(page.protocol === 'https:' ? ['Secure'] : []),
    ];
    const here = new URL(this.#path, page);
    Object.assign(here, { username: USER, password, search: String(new URLSearchParams({ back })) });
    const headers = { ...PAGE_HEADERS, location: here.href, 'set-cookie': attributes.join('; ') };
    res.writeHead(303, headers).end();
  }

  /** The browser has its password from the URL that it comes by, and goes on to one without. */
  #remembered(
    { url = '', headers: { cookie = '', authorization = '' } }: IncomingMessage,
    res: ServerResponse,
  ): void {
    const back = this.#backTo(new URL(url, this.#parts.page).searchParams.get('back') ?? '');
    const refused = this.#refused(back, cookie, authorization);
    if (refused === undefined) res.writeHead(303, { ...PAGE_HEADERS, location: back }).end();
    else res.writeHead(refused.status, refused.headers).end(refused.body);
  }

  #isOpen(): boolean {
    return this.#code !== undefined && this.#tries > 0 && this.#now() < this.#codeEnds;
  }

  /** Takes one try. */
  #takes(given: string): boolean {
    this.#tries -= 1;
    const letters = given
      .toUpperCase()
      .replaceAll(/[\s-]/g, '')
      .replaceAll('O', '0')
      .replaceAll(/[IL]/g, '1');
    const isRight = this.#code !== undefined && timingSafeEqual(this.#code, digestOf(letters));
    if (isRight) this.#code = undefined;
    return isRight;
  }

  #pairedWith(cookies: string): { readonly login: Buffer } | undefined {
    const paired = this.#paired;
    if (paired === undefined || this.#now() >= paired.ends) return undefined;
    const isTheirs = cookies.split(';').some((pair) => {
      const [name, value = ''] = pair.trim().split('=', 2);
      return name === this.#name && timingSafeEqual(paired.cookie, digestOf(value));
    });
    return isTheirs ? paired : undefined;
  }

  /** A form cannot send a browser anywhere but to the page. */
  #backTo(url: string): string {
    const { origin, pathname, href } = this.#parts.page;
    if (!URL.canParse(url)) return href;
    const back = new URL(url);
    return back.origin === origin && back.pathname.startsWith(`${pathname}/`) ? origin + back.pathname : href;
  }

  /** The page on which a person types the code. @param back the page to go on to @param error why the one before was refused */
  #form(back: string, error?: string): string {
    const action = this.#parts.page.origin + this.#path;
    return documentOf(
      `${error === undefined ? '' : 'Error: '}Pair this browser`,
      html`<h1>Pair this browser</h1>
<p>The terminal in which you started the server shows a code. Only somebody who can see it may answer here.</p>
<form method="post" action="${action}" autocomplete="off">
<input type="hidden" name="back" value="${back}">
<div class="field">
<label for="code">Code</label>
${error !== undefined && html`<p class="error" id="code-error" role="alert">Error: ${readable(error)}</p>\n`}<input type="text" id="code" name="code" required autofocus autocapitalize="characters" spellcheck="false"${
        error !== undefined && html` aria-invalid="true" aria-describedby="code-error"`
      }>
</div>
<button>Pair</button>
</form>`,
    );
  }
}

const AGAIN = 'Start the server again for a new code, and open the link again.';
const CLOSED = notePage({
  title: 'This browser is not paired',
  text: ['No code is taken any more: it was used, has expired, or was wrong too often.', AGAIN],
});
const FORGOTTEN = notePage({
  title: 'This browser has forgotten its pairing',
  text: ['A browser forgets it when it is closed. It is of no use to type a password.', AGAIN],
});
const FOREIGN = notePage({
  title: 'This form was sent from elsewhere',
  text: ['Open the link again, and type the code on its page.'],
});

function secret(): string {
  return randomBytes(32).toString('base64url');
}

function digestOf(value: string): Buffer {
  return createHash('sha256').update(value).digest();
}
