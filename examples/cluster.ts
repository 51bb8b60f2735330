// Two processes that share a SQLite file, behind a balancer that sends each request to the next of them:
// sessions, their streams and the answers of their users are everybody's.
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
const balancer = createServer((req, res) => {
  const target = processes[turn++ % processes.length] as URL;
  const headers = { ...req.headers, host: target.host };
  const onward = request(target, { method: req.method, headers }, (answer) => {
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    res.flushHeaders();
    answer.pipe(res);
  });
  onward.on('error', () => (res.headersSent ? res.destroy() : res.writeHead(502).end()));
  res.once('close', () => onward.destroy());
  req.pipe(onward);
});
balancer.listen(3000, '127.0.0.1', () => {
  console.log(
    `listening on http://127.0.0.1:3000/mcp, in front of ${processes.map(({ port }) => port).join(' and ')}`,
  );
});
