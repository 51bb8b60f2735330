/** The record of a call of 2025-11-25, for tests of its journal alone. */
import type { CallRecord } from '../../src/call/journal/entries.ts';

/** @param created @param expires in milliseconds since the epoch */
export function liveCall(created: number, expires: number): CallRecord {
  return {
    id: 'one',
    method: 'tools/call',
    params: { name: 'order' },
    requestId: 1,
    revision: '2025-11-25',
    client: { capabilities: {}, info: { name: 'desk', version: '1' }, protocolVersion: '2025-11-25' },
    created,
    expires,
  };
}
