/** The server that the rolling run restarts: its effects go into the driver's ledger, and each is in a step. */
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import { step } from '../../src/index.ts';

const LEDGER = process.env.ROLLING_LEDGER ?? '';

/** The post is the effect: once the ledger has it, it happened. */
function charge(call: string, name: string, takes: number): Promise<string> {
  return step(name, async () => {
    await fetch(LEDGER, { method: 'POST', body: JSON.stringify({ call, step: name, pid: process.pid }) });
    await sleep(takes);
    return name;
  });
}

export default function build(): McpServer {
  const server = new McpServer({ name: 'rolling', version: '1' });
  const ask = async (message: string): Promise<void> => {
    const requestedSchema = { type: 'object' as const, properties: { go: { type: 'boolean' as const } } };
    await server.server.elicitInput({ message, requestedSchema });
  };
  const said = (done: readonly string[]) => ({ content: [{ type: 'text' as const, text: done.join() }] });
  const inputSchema = { call: z.string(), takes: z.number() };
  server.registerTool('order', { inputSchema }, async ({ call, takes }) => {
    await ask('What?');
    const first = await charge(call, 'charge', takes);
    await ask('Where?');
    return said([first, await charge(call, 'ship', takes)]);
  });
  server.registerTool('steps', { inputSchema }, async ({ call, takes }) => {
    const done: string[] = [];
    for (const name of ['a', 'b', 'c']) done.push(await charge(call, name, takes));
    return said(done);
  });
  server.registerTool('plain', { inputSchema }, async ({ takes }) => {
    await sleep(takes);
    return said(['plain']);
  });
  return server;
}
