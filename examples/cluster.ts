// Two processes that share a SQLite file, behind a balancer that sends each request to the next of them.
//
//   npm run build && npx tsx examples/cluster.ts
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const store = `sqlite://${join(mkdtempSync(join(tmpdir(), 'mcp-await-')), 'calls.sqlite')}`;
const secret = randomBytes(32).toString('base64url');

async function startProcess(): Promise<URL> {
  const args = [
    'dist/src/cli/main.js',
    'serve',
    'examples/booking/with-steps.ts',
    '--port',
    '0',
    '--store',
    store,
  ];
  const child = spawn(process.execPath, args, {
    env: { ...process.env, MCP_AWAIT_SECRET: secret },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.once('exit', () => child.kill());
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return new URL(line.replace('listening on ', ''));
}

const processes = await Promise.all([startProcess(), startProcess()]);
let turn = 0;
// Each POST may go anywhere. A 2025 client's answers must reach the process that holds its stream, so a
// session stays where it began.
const homes = new Map<string, URL>();
const balancer = createServer((req, res) => {
  const session = req.headers['mcp-session-id'];
  const home = typeof session === 'string' ? homes.get(session) : undefined;
  const target = home ?? (processes[turn++ % processes.length] as URL);
  const headers = { ...req.headers, host: target.host };
  const onward = request(target, { method: req.method, headers }, (answer) => {
    const started = answer.headers['mcp-session-id'];
    if (typeof started === 'string') homes.set(started, target);
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(res);
  });
  onward.on('error', () => res.writeHead(502).end());
  req.pipe(onward);
});
balancer.listen(3000, '127.0.0.1', () => {
  console.log(
    `listening on http://127.0.0.1:3000/mcp, in front of ${processes.map(({ port }) => port).join(' and ')}`,
  );
});
