/** The page on which a person types the code that the terminal of their server shows. */
import { documentOf } from './document.ts';
import { html, readable } from './html.ts';

export interface PairView {
  /** Where the form is posted to. */
  readonly action: string;
  /** The page to go on to. */
  readonly back: string;
  /** Why the code before was refused. */
  readonly error?: string;
}

export function pairPage({ action, back, error }: PairView): string {
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
