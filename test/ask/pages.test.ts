import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { STYLE_HASH } from '../../src/ask/page/document.ts';
import { html, readable, visible } from '../../src/ask/page/html.ts';
import { type AskView, askPage, type ListView, listPage, notePage } from '../../src/ask/page/pages.ts';
import type { JsonObject } from '../../src/base/values.ts';

const HOSTILE = `</textarea></select><script>alert(1)</script>" onfocus="alert(2)' & \u202egnp.exe\u200b\u{e0041}`;

function view(more: Partial<AskView> = {}): AskView {
  return {
    server: 'files',
    tool: 'delete_folder',
    client: 'Some Host 1.2',
    asked: Date.UTC(2026, 6, 28, 9, 5),
    expires: Date.UTC(2026, 6, 29, 9, 5),
    args: { path: '/home/ann' },
    asks: [{ key: 'q1', message: 'Really?', schema: { type: 'object', properties: {} } }],
    action: '/ask/abc',
    tokens: { q1: 'sealed-1', q2: 'sealed-2' },
    list: '/ask',
    ...more,
  };
}

function ask(properties: JsonObject, required: readonly string[] = []): AskView['asks'] {
  return [{ key: 'q1', message: 'Which?', schema: { type: 'object', properties, required } }];
}

function count(page: string, part: string): number {
  return page.split(part).length - 1;
}

/** The tags of a page: what is escaped is none. */
function tags(page: string): string[] {
  return [
    ...new Set([...page.matchAll(/<\/?([a-z][a-z\d]*)/gi)].map(([, name = '']) => name.toLowerCase())),
  ].sort();
}

describe('texts of strangers', () => {
  it('are escaped in elements and attributes, and have no unseen characters', () => {
    expect(html`<p title="${'"<&>'}">${['<b>', 1, undefined, false, html`<i></i>`]}</p>`.text).toBe(
      '<p title="&quot;&lt;&amp;&gt;">&lt;b&gt;1<i></i></p>',
    );
    expect(visible('a\u202eb\u2066\u200b\u200d\ufeff\u2028\u0000\u{e0041}\ud800\ufff9 c\n')).toBe(
      'a<U+202E>b<U+2066><U+200B><U+200D><U+FEFF><U+2028><U+0000><U+E0041><U+D800><U+FFF9> c\n',
    );
    // They look like a colon and a bar, and turn the order of the numbers about them; two have no picture.
    expect(visible('9000 \u05c3 12 \u05c0\u2800\u{1d159}')).toBe(
      '9000 <U+05C3> 12 <U+05C0><U+2800><U+1D159>',
    );
    expect(readable('می\u200cخواهم 👩\u200d🚀 ❤\ufe0f \u202e\u200b')).toBe(
      'می\u200cخواهم 👩\u200d🚀 ❤\ufe0f <U+202E><U+200B>',
    );
  });

  it('stay texts wherever they are on a page', () => {
    const field = (more: JsonObject): JsonObject => ({ title: HOSTILE, description: HOSTILE, ...more });
    const titled = Array.from({ length: 12 }, (_, nth) => ({ const: `${HOSTILE}${nth}`, title: HOSTILE }));
    const properties = {
      [HOSTILE]: field({ type: 'string', default: HOSTILE }),
      lines: field({ type: 'string', default: `${HOSTILE}\n${HOSTILE}`, pattern: HOSTILE }),
      some: field({ type: 'string', enum: [HOSTILE] }),
      many: field({ type: 'string', oneOf: titled }),
      list: field({ type: 'array', items: { anyOf: titled } }),
      other: field({ type: 'object' }),
    };
    const errors = Object.fromEntries(['', ...Object.keys(properties)].map((name) => [name, HOSTILE]));
    const names = { server: HOSTILE, tool: HOSTILE, client: HOSTILE };
    const asks = [{ key: HOSTILE, message: HOSTILE, schema: { properties } }];
    const links = { action: HOSTILE, list: HOSTILE, tokens: { [HOSTILE]: HOSTILE } };
    const form = new URLSearchParams([['field.lines', `${HOSTILE}\n`]]);
    const shown = [
      askPage(view({ ...names, ...links, asks, args: { [HOSTILE]: [HOSTILE] } })),
      askPage(view({ ...names, ...links, asks, given: { key: HOSTILE, form, errors } })),
      listPage({
        person: HOSTILE,
        groups: [
          {
            ...names,
            asks: [
              {
                href: HOSTILE,
                message: HOSTILE,
                client: HOSTILE,
                asked: 0,
                expires: 1,
                args: JSON.stringify({ a: HOSTILE }),
              },
            ],
          },
        ],
      }),
      notePage({ title: HOSTILE, text: [HOSTILE], list: HOSTILE }),
    ];
    for (const page of shown) {
      expect(page).not.toMatch(/<script|<\/script|" on/);
      expect(tags(page)).not.toContain('script');
      expect(page).toContain('&lt;script&gt;');
      // Values of controls go back as they are; what is only read has no character that turns it.
      const read = page.replaceAll(/ (?:value|name|href|action)="[^"]*"|<textarea[^>]*>[^<]*/g, '');
      expect(read).toContain('&lt;U+202E&gt;');
      expect(read).toContain('&lt;U+E0041&gt;');
      expect(read).not.toMatch(/[\u202e\u200b\u{e0041}]/u);
    }
  });

  it('name a choice that is an empty text', () => {
    const properties = { one: { enum: ['', 's'] }, two: { oneOf: [{ const: '' }] }, many: { enum: ['s'] } };
    const page = askPage(view({ asks: [{ key: 'k', message: 'which?', schema: { properties } }] }));
    expect(page).not.toContain('<bdi></bdi>');
    expect(page.match(/<bdi>(&quot;|&#34;|"){2}<\/bdi>/g)).toHaveLength(2);
  });

  it('show the arguments as the tool got them', () => {
    const args = { path: '/home/\u202egnp.exe', to: ['a\u200bb@example.com'], count: 3, html: '<b>' };
    const page = askPage(view({ args }));
    expect(page).toContain(
      `{
  &quot;path&quot;: &quot;/home/&lt;U+202E&gt;gnp.exe&quot;,
  &quot;to&quot;: [
    &quot;a&lt;U+200B&gt;b@example.com&quot;
  ],
  &quot;count&quot;: 3,
  &quot;html&quot;: &quot;&lt;b&gt;&quot;
}</pre>`,
    );
    expect(askPage(view({ args: {} }))).toContain('it has no arguments');
  });
});

describe('the page of an ask', () => {
  it('is one document with one heading, times in UTC, and no script', () => {
    const page = askPage(view());
    expect(page).toMatch(/^<!doctype html>\n<html lang="en">/);
    expect(page).toContain('<title>delete_folder waits for your answer</title>');
    expect([count(page, '<h1>'), count(page, '<form'), count(page, '<style>')]).toEqual([1, 1, 1]);
    expect(page).toContain('<time datetime="2026-07-28T09:05:00.000Z">2026-07-28 09:05 UTC</time>');
    expect(tags(page)).not.toContain('script');
    expect(page).not.toMatch(/ style=| on[a-z]+=/);
  });

  it('has a style that its hash allows', () => {
    for (const page of [askPage(view()), notePage({ title: 'AbortSignalLike', text: [] })]) {
      const style = /<style>([^<]*)<\/style>/.exec(page)?.[1] ?? '';
      expect(STYLE_HASH).toBe(`'sha256-${createHash('sha256').update(style).digest('base64')}'`);
    }
  });

  it('has a form for each ask, with its token, and ids that are there once', () => {
    const schema = { properties: { a: { type: 'string' }, b: { enum: ['x', 'y'] } } };
    const page = askPage(
      view({ asks: ['q1', 'q2', 'constructor'].map((key) => ({ key, message: key, schema })) }),
    );
    const forms = page.split('<form ').slice(1);
    expect(forms.map((form) => /name="token" value="([^"]*)"/.exec(form)?.[1])).toEqual([
      'sealed-1',
      'sealed-2',
      '',
    ]);
    expect(forms.map((form) => /name="key" value="([^"]*)"/.exec(form)?.[1])).toEqual([
      'q1',
      'q2',
      'constructor',
    ]);
    const ids = [...page.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const labels = [...page.matchAll(/ (?:for|aria-labelledby|aria-describedby)="([^"]*)"/g)];
    expect(ids).toEqual(expect.arrayContaining(labels.flatMap(([, label = '']) => label.split(' '))));
  });

  it('has three actions, of which none is chosen and two need no field', () => {
    const page = askPage(view({ asks: ask({ a: { type: 'string' }, b: { type: 'boolean' } }, ['a', 'b']) }));
    const buttons = [...page.matchAll(/<button ([^>]*)>/g)].map(([, attributes]) => attributes);
    expect(buttons).toEqual([
      'disabled hidden',
      'name="action" value="accept" aria-describedby="ask-1-accept"',
      'name="action" value="decline" aria-describedby="ask-1-decline" formnovalidate',
      'name="action" value="cancel" aria-describedby="ask-1-cancel" formnovalidate',
    ]);
    expect(page).not.toContain(' checked');
    expect(count(page, ' required')).toBe(3);
  });

  it('shows a default, "No answer" where there is none, and what was given instead of both', () => {
    const properties = {
      size: { type: 'string', enum: ['s', 'l'], default: 'l' },
      sure: { type: 'boolean' },
      name: { type: 'string', default: 'Ann' },
      month: {
        type: 'string',
        enum: Array.from({ length: 12 }, (_, nth) => `month ${nth}`),
        default: 'month 3',
      },
    };
    const first = askPage(view({ asks: ask(properties) }));
    expect(first).toMatch(/value="1" checked><bdi>l</);
    expect(first).toMatch(/name="field.sure" value="" checked><bdi>No answer</);
    expect(first).toContain('value="Ann"');
    expect(first).toContain('<option value="3" selected>month 3</option>');
    expect(count(first, ' checked')).toBe(2);
    const form = new URLSearchParams('field.size=0&field.sure=1&field.name=Bob&field.month=5');
    const again = askPage(
      view({ asks: ask(properties), given: { key: 'q1', form, errors: { name: 'No.' } } }),
    );
    expect(again).toMatch(/value="0" checked><bdi>s</);
    expect(again).toMatch(/value="1" checked><bdi>No</);
    expect(again).toContain('value="Bob"');
    expect(again).toContain('<option value="5" selected>');
    expect([count(again, ' checked'), count(again, ' selected')]).toEqual([2, 1]);
  });

  it('says at the top and at its field what is wrong, and nowhere else', () => {
    const properties = { age: { type: 'integer', title: 'Your age' }, constructor: { type: 'string' } };
    const asks = [...ask(properties), { key: 'q2', message: 'And?', schema: { properties } }];
    const errors = { age: 'Enter 18 or more.', '': 'The server rejects this.' };
    const given = { key: 'q1', form: new URLSearchParams('field.age=5'), errors };
    const page = askPage(view({ asks, given }));
    expect(page).toContain('<title>Error: ');
    expect(count(page, 'role="alert"')).toBe(1);
    expect(page).toContain('<a href="#ask-1-field-1"><bdi>Your age</bdi>: Enter 18 or more.</a>');
    expect(page).toContain('<li>The server rejects this.</li>');
    expect(page).toMatch(
      /id="ask-1-field-1"[^>]* aria-invalid="true" aria-describedby="[^"]*ask-1-field-1-error"/,
    );
    expect(count(page, 'aria-invalid')).toBe(1);
    expect(count(page, 'Error: Enter 18')).toBe(1);
    expect(page).toContain('value="5"');
  });

  it('marks a field that looks like a password', () => {
    const page = askPage(view({ asks: ask({ password: { type: 'string' }, name: { type: 'string' } }) }));
    expect(count(page, 'class="warning"')).toBe(1);
    expect(page).toMatch(/name="field.password" aria-describedby="ask-1-field-1-warning"/);
  });
});

describe('what is too long for a page', () => {
  const UNSEEN = '\u200b'.repeat(320_000);
  /** 197 KB, and 94 MB where it is indented. */
  const nested: JsonObject = {
    deep: JSON.parse(`${'['.repeat(480)}${'1,'.repeat(98_000)}1${']'.repeat(480)}`),
  };
  const actions = (page: string): (string | undefined)[] =>
    [...page.matchAll(/name="action" value="(\w+)"/g)].map(([, action]) => action);

  it('has no indentation where that would be far longer than the arguments', () => {
    const page = askPage(view({ args: nested }));
    expect(page.length).toBeLessThan(220_000);
    expect(page).toContain(`1${']'.repeat(480)}}</pre>`);
    expect(actions(page)).toEqual(['accept', 'decline', 'cancel']);
  });

  it.each([
    ['arguments', view({ args: { text: UNSEEN } })],
    ['arguments of many quotes', view({ args: { text: '"'.repeat(3_000_000) } })],
    ['a question', view({ asks: [{ key: 'q1', message: UNSEEN, schema: {} }] })],
    ['a description', view({ asks: ask({ a: { type: 'string', description: UNSEEN } }) })],
    ['a title', view({ asks: ask({ a: { type: 'string', title: UNSEEN } }) })],
    [
      'choices',
      view({ asks: ask({ a: { type: 'array', items: { enum: Array.from({ length: 40_000 }, String) } } }) }),
    ],
    [
      'fields',
      view({ asks: ask(Object.fromEntries(Array.from({ length: 9_000 }, (_, nth) => [`${nth}`, {}]))) }),
    ],
  ])('can be declined and cancelled, and not accepted: %s', (_what, long) => {
    const page = askPage(long);
    expect(page.length).toBeLessThan(1_500_000);
    expect(actions(page)).toEqual(['decline', 'cancel']);
    expect(page).toContain('too long');
  });

  it('leaves the room of a page to the asks that fit in it', () => {
    const asks = ['q1', 'q2', 'q3'].map((key) => ({ key, message: key.repeat(60_000), schema: {} }));
    expect(actions(askPage(view({ asks })))).toEqual([
      ...['accept', 'decline', 'cancel'],
      ...['accept', 'decline', 'cancel'],
      ...['decline', 'cancel'],
    ]);
  });

  it('is marked where a name is cut, in the list too', () => {
    const names = { server: UNSEEN, tool: UNSEEN, client: UNSEEN };
    const long = { href: '/ask/1', message: UNSEEN, args: UNSEEN, asked: 1, expires: 2 };
    const listed = { person: UNSEEN, groups: [{ ...names, asks: [{ ...long, client: UNSEEN }] }] };
    for (const page of [askPage(view(names)), listPage(listed)]) {
      expect(page).toContain('(cut: the rest is not shown)');
      expect(page.length).toBeLessThan(20_000);
    }
  });

  it('is cut between characters, and a piece of it has all of its own', () => {
    const emoji = '👩'.repeat(10_001);
    expect(visible(`a${emoji}`)).toBe(`a${emoji}`);
    expect(visible(emoji, 5)).toBe('👩👩… (cut: the rest is not shown)');
  });
});

describe('the list', () => {
  it('has the newest first, and the asks of one tool together', () => {
    const one = (message: string, asked: number): ListView['groups'][number]['asks'][number] => ({
      href: `/ask/${message}`,
      message,
      client: 'host',
      asked,
      expires: asked + 1,
      args: JSON.stringify({ message }),
    });
    const page = listPage({
      person: 'ann@example.com',
      groups: [
        { server: 's', tool: 'old', asks: [one('a', 1), one('b', 5)] },
        { server: 's', tool: 'new', asks: [one('c', 9)] },
        { server: 's', tool: 'none', asks: [] },
      ],
    });
    expect([...page.matchAll(/href="\/ask\/(.)"/g)].map(([, name]) => name)).toEqual(['c', 'b', 'a']);
    expect([...page.matchAll(/<h2[^>]*><bdi>(\w+)/g)].map(([, tool]) => tool)).toEqual(['new', 'old']);
    expect(count(page, 'Each one that you accept takes effect')).toBe(1);
    expect(count(page, '<pre')).toBe(3);
  });

  it('says so where nothing waits', () => {
    expect(listPage({ person: 'ann', groups: [] })).toContain('Nothing waits for you now.');
  });
});

describe('a note', () => {
  it('says what it is given, with a link where there is a list', () => {
    const note = { title: 'Answered', text: ['Go back to your client.', 'You may close this page.'] };
    const page = notePage({ ...note, list: '/ask' });
    expect(page).toContain('<title>Answered</title>');
    expect(page).toContain('<h1>Answered</h1>');
    expect(page).toMatch(/Go back to your client\.<\/p>\n<p dir="auto">You may close/);
    expect(page).toContain('<a href="/ask">');
    expect(notePage(note)).not.toContain('<a ');
  });
});
