/** A Redis of the benchmark's own, so that all it counts and holds is the benchmark's. */
import { spawn } from 'node:child_process';
import { createClient } from '@redis/client';

/** @returns undefined where no redis-server starts */
export async function ownRedis(port) {
  const server = spawn('redis-server', ['--port', String(port), '--save', '', '--appendonly', 'no'], {
    stdio: 'ignore',
  });
  server.on('error', () => {});
  const url = `redis://127.0.0.1:${port}`;
  const client = createClient({ url });
  client.on('error', () => {});
  for (let tries = 0; tries < 50 && server.exitCode === null; tries += 1) {
    try {
      if (!client.isOpen) await client.connect();
      await client.ping();
      const stop = async () => {
        await client.close();
        server.kill();
      };
      return { url, client, stop };
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  client.destroy();
  return undefined;
}
