/**
 * The pages on which a person answers an ask elsewhere than in a host. Each function returns a whole document.
 * 1. Nothing that a page shows is hidden: texts are escaped, and unseen characters have their numbers.
 * 2. The three actions are equal: none is preselected, and the key Enter in a field chooses none.
 */
import type { JsonObject } from '../../base/values.ts';
import { fieldControl } from './controls.ts';
import { documentOf } from './document.ts';
import type { Field } from './field.ts';
import { controlName, type FieldErrors, firstForm, formOf, textsIn } from './form.ts';
import { beginningOf, type Html, html, readable, visible } from './html.ts';
import { type AskText, readableAsks, shownArguments } from './whole.ts';

/** Longest name of a tool, server, client or person as shown, in characters. */
const NAME = 300;
/** What is shown of a question that cannot be shown whole, in characters. */
const BEGINNING = 2_000;
/** What the list shows of a question, and of the arguments. */
export const LISTED = 500;

export interface AskView {
  readonly server: string;
  readonly tool: string;
  readonly client: string;
  /** Milliseconds since the epoch, as is `expires`. */
  readonly asked: number;
  readonly expires: number;
  readonly args: JsonObject;
  /** One form each. */
  readonly asks: readonly AskText[];
  /** Where the forms are posted to. */
  readonly action: string;
  /** The hidden field `token` of each form, by its key. */
  readonly tokens: Readonly<Record<string, string>>;
  /** The URL of the person's list. */
  readonly list: string;
  /** A submitted form that was wrong, shown again; the error of `''` is the whole form's. */
  readonly given?: Submitted;
}

export interface Submitted {
  readonly key: string;
  readonly form: URLSearchParams;
  readonly errors: FieldErrors;
}

export function askPage(view: AskView): string {
  const { server, tool, args, asks, list, given } = view;
  const title = `${beginningOf(tool, NAME)} waits for your answer`;
  const whole = readableAsks(args, asks);
  const forms = asks.map((ask, index) => askForm(view, ask, index, whole.has(ask.key)));
  return documentOf(
    `${given === undefined ? '' : 'Error: '}${title}`,
    html`${forms.map(({ summary }) => summary)}<h1><bdi>${visible(tool, NAME)}</bdi> waits for your answer</h1>
<dl>
<dt>Server</dt><dd dir="auto">${visible(server, NAME)}</dd>
<dt>Tool</dt><dd dir="auto">${visible(tool, NAME)}</dd>
${askedBy(view)}</dl>
<h2 id="arguments">What the tool was called with</h2>
${argumentsOf(args)}
${forms.map(({ form }) => form)}
<p><a href="${list}">All that waits for you</a></p>`,
  );
}

/** A form, and where it was wrong a summary for the top of the page. */
function askForm(
  { action, tokens, given, asks }: AskView,
  { key, message, schema }: AskView['asks'][number],
  index: number,
  isWhole: boolean,
): { readonly form: Html; readonly summary: Html | undefined } {
  const id = `ask-${index + 1}`;
  const fields = (isWhole ? formOf(schema) : []).map((field, place) => ({
    field,
    id: `${id}-field-${place + 1}`,
  }));
  const again = given?.key === key ? given : undefined;
  const values = textsIn(again?.form ?? firstForm(fields.map(({ field }) => field)));
  const errorOf = (name: string): string | undefined => own(again?.errors ?? {}, name);
  const form = html`<form method="post" action="${action}" autocomplete="off" aria-labelledby="${id}">
<h2 id="${id}">${asks.length > 1 ? `Question ${index + 1} of ${asks.length}` : 'Question'}</h2>
<p class="question" dir="auto">${readable(message, isWhole ? undefined : BEGINNING)}</p>
${!isWhole && html`<p class="warning">${TOO_LONG}</p>\n`}<input type="hidden" name="token" value="${own(tokens, key) ?? ''}">
<input type="hidden" name="key" value="${key}">
${NO_DEFAULT}
${fields.map(({ field, id }) =>
  fieldControl(field, { id, texts: values(controlName(field)), error: errorOf(field.name) }),
)}<div class="actions">
${ACTIONS.filter(({ skips }) => isWhole || skips).map(
  ({
    value,
    label,
    meaning,
    skips,
  }) => html`<button name="action" value="${value}" aria-describedby="${id}-${value}"${
    skips && html` formnovalidate`
  }>${label}</button>
<p id="${id}-${value}">${meaning}</p>
`,
)}</div>
</form>`;
  return { form, summary: again && summaryOf(fields, errorOf) };
}

/** A form's first button is pressed by the key Enter in any of its fields; one that is disabled keeps it from that. */
const NO_DEFAULT = html`<button disabled hidden>Choose an action below</button>`;

const TOO_LONG =
  'The question and the arguments are too long to be shown whole. Nobody should agree to what they cannot read, so you can only decline or cancel here.';

const ACTIONS = [
  {
    value: 'accept',
    label: 'Submit answer',
    meaning: 'The tool gets what you entered, and goes on with it.',
    skips: false,
  },
  { value: 'decline', label: 'Decline', meaning: 'You say no: the tool is told so.', skips: true },
  { value: 'cancel', label: 'Cancel', meaning: 'You do not decide: the tool gets no answer.', skips: true },
];

function summaryOf(
  fields: readonly { readonly field: Field; readonly id: string }[],
  errorOf: (name: string) => string | undefined,
): Html {
  const whole = fields.some(({ field }) => field.name === '') ? undefined : errorOf('');
  const wrong = fields.filter(({ field }) => errorOf(field.name) !== undefined);
  return html`<div class="errors" role="alert" tabindex="-1" autofocus>
<h2>Nothing was sent: please correct this</h2>
<ul>
${whole !== undefined && html`<li>${readable(whole)}</li>\n`}${wrong.map(
  ({ field, id }) =>
    html`<li><a href="#${id}"><bdi>${readable(field.title)}</bdi>: ${readable(errorOf(field.name) ?? '')}</a></li>\n`,
)}</ul>
</div>
`;
}

export interface ListedAsk {
  readonly href: string;
  readonly message: string;
  readonly client: string;
  readonly asked: number;
  readonly expires: number;
  /** The beginning of the arguments, as compact JSON. */
  readonly args: string;
}

export interface ListView {
  readonly person: string;
  /** Whether more asks wait than are listed. */
  readonly hasMore?: boolean;
  readonly groups: readonly {
    readonly server: string;
    readonly tool: string;
    readonly asks: readonly ListedAsk[];
  }[];
}

/** A person's open asks: the newest first, and those of one tool together, since each accepted one takes effect. */
export function listPage({ person, groups, hasMore = false }: ListView): string {
  const sorted = groups
    .map((group) => ({ ...group, asks: group.asks.toSorted((a, b) => b.asked - a.asked) }))
    .filter(({ asks }) => asks.length > 0)
    .sort((a, b) => (b.asks[0]?.asked ?? 0) - (a.asks[0]?.asked ?? 0));
  return documentOf(
    'What waits for you',
    html`<h1>What waits for <bdi>${visible(person, NAME)}</bdi></h1>
${sorted.length === 0 && html`<p>Nothing waits for you now.</p>`}${sorted.map(groupOf)}${
  hasMore && html`<p>More waits for you. Answer some of these, and load this page again.</p>`
}`,
  );
}

function askedBy({ client, asked, expires }: Pick<AskView, 'client' | 'asked' | 'expires'>): Html {
  return html`<dt>Asked through</dt><dd dir="auto">${visible(client, NAME)}</dd>
<dt>Asked at</dt><dd>${time(asked)}</dd>
<dt>Expires at</dt><dd>${time(expires)}</dd>
`;
}

function groupOf({ server, tool, asks }: ListView['groups'][number], index: number): Html {
  return html`<section aria-labelledby="tool-${index + 1}">
<h2 id="tool-${index + 1}"><bdi>${visible(tool, NAME)}</bdi> of <bdi>${visible(server, NAME)}</bdi></h2>
${asks.length > 1 && html`<p>These are ${asks.length} calls. Each one that you accept takes effect.</p>\n`}<ol>
${asks.map(
  (ask, place) => html`<li class="open">
<p class="question" dir="auto"><a href="${ask.href}">${readable(ask.message, LISTED) || 'A question without words'}</a></p>
<dl>
${askedBy(ask)}</dl>
<p class="hint" id="tool-${index + 1}-${place + 1}">Called with</p>
${argumentBox(ask.args === '{}' ? '' : visible(ask.args, LISTED), `tool-${index + 1}-${place + 1}`)}
</li>
`,
)}</ol>
</section>
`;
}

/** A page that only says something: what happens after an answer, or why none is taken. */
export function notePage(view: {
  readonly title: string;
  readonly text: readonly string[];
  /** The URL of the person's list. */
  readonly list?: string;
}): string {
  const { title, text, list } = view;
  return documentOf(
    title,
    html`<h1>${readable(title)}</h1>
${text.map((paragraph) => html`<p dir="auto">${readable(paragraph)}</p>\n`)}${
  list !== undefined && html`<p><a href="${list}">All that waits for you</a></p>`
}`,
  );
}

function argumentsOf(args: JsonObject): Html {
  const { text, isCut } = shownArguments(args);
  return html`${isCut && html`<p class="warning">These are too long: only their beginning is shown.</p>\n`}${argumentBox(
    text === '{}' ? '' : text,
    'arguments',
  )}`;
}

/** @param label the id of what names them; they scroll where they are long, so they take the focus */
function argumentBox(json: string, label: string): Html {
  if (json === '') return html`<p>Nothing: it has no arguments.</p>`;
  return html`<pre tabindex="0" role="group" aria-labelledby="${label}">${json}</pre>`;
}

/** In UTC, since only a script would know the zone of its reader. */
function time(at: number): Html {
  const [day = '', clock = ''] = new Date(at).toISOString().split('T');
  return html`<time datetime="${day}T${clock}">${day} ${clock.slice(0, 5)} UTC</time>`;
}

/** A key that nobody set has no value here, even where every object has it, as `constructor`. */
function own(values: Readonly<Record<string, string>>, key: string): string | undefined {
  return Object.hasOwn(values, key) ? values[key] : undefined;
}
