/**
 * The protocol versions that hosted servers of the SDKs speak, those with sessions, whichever revision the client
 * speaks.
 */
import type { Client } from '../call/journal/entries.ts';

export const SPOKEN: ReadonlySet<string> = new Set(['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']);
/** The last one with requests from servers to clients. */
export const LATEST = '2025-11-25';

/** A client for servers that are made before there is one. */
export const NOBODY: Client = {
  capabilities: {},
  info: { name: 'mcp-await', version: '0' },
  protocolVersion: LATEST,
};
