/** `stdioHost`: a server of any language, as a child process. */

import { basename } from 'node:path';
import { defined, optionError } from '../base/values.ts';
import { ChildLink, type ChildOptions } from './child.ts';
import { type PeerHost, type PeerHostOptions, peerHost } from './host.ts';
import type { OpenLink } from './link.ts';
import { openModernChild } from './modern-wires.ts';

/** The options of `stdioHost`. */
export interface StdioHostOptions extends ChildOptions, PeerHostOptions {}

/**
 * A server that speaks MCP over its stdin and stdout, for `createAwaitHandler`. It needs no change, and is started once
 * for each session, or for each known caller without sessions.
 *
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createAwaitHandler, stdioHost } from 'mcp-await';
 *
 * const memory = stdioHost({ command: 'npx', args: ['-y', '@modelcontextprotocol/server-memory'] });
 * const handler = createAwaitHandler(memory);
 */
export function stdioHost(options: StdioHostOptions): PeerHost {
  const { command, args = [], env, cwd, lineBytes, ...host } = options;
  if (typeof command !== 'string' || command === '') {
    throw optionError("stdioHost needs a command: stdioHost({ command: 'npx', args: [...] })");
  }
  const child: ChildOptions = {
    command,
    args,
    ...defined({ env, cwd, lineBytes }),
  };
  const name = basename(command);
  return peerHost(name, host, child, ({ logger, listens, account }) => {
    const open: OpenLink = (events) => new ChildLink(child, name, logger, account, events);
    return [
      ['2025-11-25', open],
      ['2026-07-28', (events) => openModernChild(open, logger, listens, account, events)],
    ];
  });
}
