/** What every page has: its frame, and its style. There is no script, so a policy can forbid them all. */
import { createHash } from 'node:crypto';
import { Html, html, type Part, readable } from './html.ts';

const STYLE = `
:root {
  color-scheme: light dark;
  --back: #fdfdfc; --card: #ffffff; --ink: #1c1b19; --soft: #55524c; --line: #d5d2ca;
  --link: #1d4f91; --wrong: #a11223; --note: #fff3cd; --note-ink: #3d2c00; --focus: #0a58ca;
  font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #171614; --card: #211f1c; --ink: #eeebe4; --soft: #b9b4a9; --line: #45413a;
    --link: #8db9f3; --wrong: #ff9aa4; --note: #463500; --note-ink: #fff0c2; --focus: #8db9f3;
  }
}
* { box-sizing: border-box; }
body { margin: 0; }
main { max-width: 44rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 1.5rem 0 0.5rem; }
a { color: var(--link); }
dl { display: grid; grid-template-columns: auto 1fr; gap: 0.2rem 1rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
pre {
  margin: 0; padding: 0.6rem; max-height: 20rem; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 0.875rem/1.5 ui-monospace, monospace; background: var(--card); border: 1px solid var(--line);
}
.question { font-size: 1.1rem; white-space: pre-wrap; }
.field { margin: 0 0 1.25rem; }
fieldset { border: 0; padding: 0; min-width: 0; }
label, legend { font-weight: 600; padding: 0; }
.hint { color: var(--soft); margin: 0; white-space: pre-wrap; }
.warning { background: var(--note); color: var(--note-ink); padding: 0.5rem 0.75rem; margin: 0.25rem 0; }
.error { color: var(--wrong); font-weight: 600; margin: 0; }
.errors { border: 3px solid var(--wrong); padding: 0 1rem; margin: 0 0 1.5rem; }
input, select, textarea, button {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--soft); border-radius: 4px;
}
input:not([type="radio"], [type="checkbox"]), select, textarea {
  display: block; width: 100%; padding: 0.5rem; margin-top: 0.25rem;
}
.choice { display: flex; gap: 0.6rem; align-items: flex-start; padding: 0.35rem 0; font-weight: 400; }
.choice input { flex: none; width: 1.25rem; height: 1.25rem; margin: 0.15rem 0 0; }
.actions { display: grid; grid-template-columns: 10rem 1fr; gap: 0.75rem; align-items: center; }
.actions p { margin: 0; }
button { padding: 0.6rem; font-weight: 600; min-height: 44px; cursor: pointer; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.open { padding: 0.75rem; margin: 0 0 0.75rem; background: var(--card); border: 1px solid var(--line); }
ol { list-style: none; margin: 0; padding: 0; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin: 0 0 0.5rem; }
  .actions { grid-template-columns: 1fr; gap: 0.25rem; }
  .actions p { margin: 0 0 0.75rem; }
}
`;

/** For `style-src` of the Content-Security-Policy that a page is served with. */
export const STYLE_HASH = `'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`;

/** @param title of the window; the page's own heading is in its body */
export function documentOf(title: string, body: Part): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${readable(title)}</title>
<style>${new Html(STYLE)}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`.text;
}
