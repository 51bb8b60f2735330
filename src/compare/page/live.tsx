/** The page, live: runs the scenario or a tool, asks its user what the server asks, and kills and starts processes. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { LiveAsk, LivePlay, LiveState } from '../live.ts';
import { notCalled } from '../notes.ts';
import type { Column } from '../play.ts';
import { Form } from './form.tsx';
import type { Fields } from './json.tsx';
import { moveFocus } from './keyboard.ts';
import { StepSection } from './lanes.tsx';
import { SequenceView } from './sequence.tsx';

export function LivePage({ first }: { readonly first: LiveState }) {
  const [state, setState] = useState(first);
  const [failure, setFailure] = useState('');
  useEffect(() => {
    const events = new EventSource('/state');
    events.onmessage = ({ data }: MessageEvent<string>) => {
      setFailure('');
      setState(JSON.parse(data) as LiveState);
    };
    events.onerror = () => setFailure('The command that serves this page does not answer.');
    return () => events.close();
  }, []);
  const send = (path: string, body: Fields): void => {
    const headers = { 'content-type': 'application/json' };
    void fetch(path, { method: 'POST', headers, body: JSON.stringify(body) })
      .then(async (response) => setFailure(response.ok ? '' : await response.text()))
      .catch((error: unknown) => setFailure(String(error)));
  };
  const { play, processes, live, uncalled } = state;
  const status = useRef<HTMLParagraphElement>(null);
  // A form that was sent is gone, and with it the focus.
  useEffect(() => {
    if (document.activeElement === document.body) status.current?.focus();
  }, [play?.asks.length, play?.outcomes === undefined]);
  return (
    <>
      <header>
        <h1>{live}, live</h1>
        <p class="hint">
          Run a tool, and kill the process that it waits in: the other one goes on with the call. Each request
          of the client goes to the next process that runs.
        </p>
        {notCalled(uncalled).map((text) => (
          <p class="mistake" key={text}>
            {text}
          </p>
        ))}
      </header>
      <p role="status" class="status" tabIndex={-1} ref={status}>
        {failure || statusOf(state)}
      </p>
      <main onKeyDown={moveFocus}>
        <fieldset class="processes">
          <legend>Processes</legend>
          {processes.map(({ name, isRunning }) => (
            <button
              type="button"
              key={name}
              onClick={() => send(isRunning ? '/kill' : '/start', { process: name })}
            >
              {isRunning ? `Kill process ${name}` : `Start process ${name}`}
            </button>
          ))}
        </fieldset>
        {processes.map(
          ({ name, ended }) =>
            ended !== undefined && (
              <pre class="mistake" key={name} role="alert">
                Process {name}: {ended}
              </pre>
            ),
        )}
        <Run state={state} send={send} />
        {play?.asks.map((ask) => (
          <Asked key={ask.id} ask={ask} onAnswer={(answer) => send('/answer', { id: ask.id, answer })} />
        ))}
        {play !== undefined && (
          <SequenceView happenings={play.happenings} processes={processes.map(({ name }) => name)} />
        )}
        {play !== undefined && play.findings.length > 0 && (
          <ul class="differences">
            {play.findings.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        )}
        {play !== undefined && <Messages play={play} />}
      </main>
    </>
  );
}

interface RunProps {
  readonly state: LiveState;
  readonly send: (path: string, body: Fields) => void;
}

/** What is run, on which revision, and with which arguments. */
function Run({ state, send }: RunProps) {
  const { revisions, tools, scenario } = state;
  const [revision, setRevision] = useState(
    revisions.find((one) => String(one) === '2026-07-28') ?? revisions[0] ?? '',
  );
  const [tool, setTool] = useState('');
  const schema = tools.find(({ name }) => name === tool)?.inputSchema ?? {};
  return (
    <section aria-label="Run">
      <p class="field">
        <label for="revision">Revision</label>
        <select
          id="revision"
          value={revision}
          onChange={({ currentTarget }) => setRevision(currentTarget.value)}
        >
          {revisions.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </p>
      <p class="field">
        <label for="tool">What is run</label>
        <select id="tool" value={tool} onChange={({ currentTarget }) => setTool(currentTarget.value)}>
          <option value="">the scenario ({scenario.length} steps)</option>
          {tools.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </p>
      <Form
        key={tool}
        label="Arguments"
        schema={schema}
        values={{}}
        submit="Run"
        onSubmit={(args) => send('/run', { revision, ...(tool !== '' && { tool, args }) })}
      />
    </section>
  );
}

interface AskedProps {
  readonly ask: LiveAsk;
  readonly onAnswer: (answer: Fields) => void;
}

/** One question of the server. */
function Asked({ ask, onAnswer }: AskedProps) {
  const { question, method, params, suggested, id, again } = ask;
  const heading = `ask-${id}`;
  const isSample = method === 'sampling/createMessage';
  const isUrl = params.mode === 'url';
  const decline = (
    <>
      <button type="button" onClick={() => onAnswer({ action: 'decline' })}>
        Decline
      </button>{' '}
      <button type="button" onClick={() => onAnswer({ action: 'cancel' })}>
        Cancel
      </button>
    </>
  );
  const sample = { role: 'assistant', model: 'a person' };
  return (
    <section aria-labelledby={heading} class="ask-card">
      <h2 id={heading}>{isUrl ? String(params.message) : question}</h2>
      {again !== undefined && <p class="mistake">{again}</p>}
      {isUrl && <Link url={String(params.url)} />}
      {isSample ? (
        <Form
          label={question}
          schema={SAMPLE}
          values={{ text: textIn(suggested) }}
          submit="Answer"
          takesFocus
          onSubmit={({ text }) => onAnswer({ ...sample, content: { type: 'text', text: text ?? '' } })}
        />
      ) : (
        <Form
          label={question}
          schema={isUrl ? {} : ((params.requestedSchema ?? {}) as Fields)}
          values={(suggested.content as Fields | undefined) ?? {}}
          submit={isUrl ? 'Done' : 'Accept'}
          takesFocus
          onSubmit={(content) => onAnswer(isUrl ? { action: 'accept' } : { action: 'accept', content })}
        >
          {decline}
        </Form>
      )}
    </section>
  );
}

const SAMPLE: Fields = {
  properties: { text: { type: 'string', title: 'What the model says' } },
  required: ['text'],
};

function textIn({ content }: Fields): string {
  return String((content as { text?: unknown } | undefined)?.text ?? '');
}

/** Only what a browser opens as a page; a server may send any scheme. */
function Link({ url }: { readonly url: string }) {
  if (!/^https?:\/\//.test(url)) return <p>{url}</p>;
  return (
    <p>
      <a href={url} target="_blank" rel="noopener noreferrer">
        {url}
      </a>
    </p>
  );
}

function Messages({ play }: { readonly play: LivePlay }) {
  const { revision, client, messages, titles, outcomes } = play;
  const columns = useMemo(
    (): Column[] => [{ name: revision, revision, client, messages, steps: [] }],
    [revision, client, messages],
  );
  return (
    <>
      {[-1, ...titles.keys()].map((step) => (
        <StepSection
          key={step}
          columns={columns}
          step={step}
          title={step < 0 ? 'Before the first step' : `${step + 1}. ${titles[step]}`}
          differences={[]}
          isShown={everything}
          onToggle={nothing}
        />
      ))}
      {outcomes !== undefined && (
        <section aria-labelledby="outcomes">
          <h2 id="outcomes">Outcomes</h2>
          <ol>
            {outcomes.map((outcome, step) => (
              <li key={step}>
                {outcome.text}
                {outcome.images.map((url) => (
                  <img key={url} src={url} alt={`Result of ${titles[step] ?? 'a step'}`} />
                ))}
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

const everything = (): boolean => true;
const nothing = (): void => {};

function statusOf({ play, processes }: LiveState): string {
  if (play === undefined) return 'Nothing was run yet.';
  const { asks, messages, outcomes, revision } = play;
  if (outcomes === undefined && processes.every(({ isRunning }) => !isRunning))
    return 'No process runs. Start one: the call goes on there.';
  const last = messages.at(-1);
  const where = last === undefined ? '' : `, the last with process ${last.process}`;
  const what =
    outcomes !== undefined
      ? 'Ended'
      : asks.length > 0
        ? `The server asks: ${asks.map(({ question }) => question).join(' / ')}`
        : 'Running';
  return `${what}. ${messages.length} messages on ${revision}${where}.`;
}
