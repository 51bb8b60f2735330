// Writes the table of docs/published.md from the results, below its rule.
import { readFileSync, writeFileSync } from 'node:fs';

const PAGE = new URL('../../docs/published.md', import.meta.url);
const MARK = '## Results\n';

export function writeTable(servers, results) {
  const page = readFileSync(PAGE, 'utf8');
  const above = page.slice(0, page.indexOf(MARK) + MARK.length);
  const rows = servers.map(({ name, version }) => row(name, version, results[name]));
  const done = servers.filter(({ name }) => results[name] !== undefined);
  const well = done.filter(({ name }) => results[name].ok);
  const summary = `${servers.length} servers, ${done.length} tried: ${well.length} served to the clients of both eras over two processes, ${done.length - well.length} not.`;
  const head =
    '| server | version | tools | prompts | resources | asking tools completed | what failed |\n| --- | --- | --- | --- | --- | --- | --- |';
  writeFileSync(PAGE, `${above}\n${summary}\n\n${head}\n${rows.join('\n')}\n`);
}

function row(name, version, result) {
  if (result === undefined) return `| ${name} | ${version} | | | | | not tried yet |`;
  const { tools = '', prompts = '', resources = '', completed = [], reason = '' } = result;
  const cells = [
    name,
    version,
    tools,
    prompts,
    resources,
    completed.join(', '),
    reason.replaceAll('|', '\\|'),
  ];
  return `| ${cells.join(' | ')} |`;
}
