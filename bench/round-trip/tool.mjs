/** The parts that all variants share: a tool that asks once, and the requests to it. */
import { z } from 'zod';

export const REVISION = '2026-07-28';
export const TOOL = 'deploy';
export const SERVER = { name: 'bench', version: '1.0.0' };
export const SECRET = 'a secret of the benchmark, and of nothing else';

export const DESCRIPTION = 'Deploys a branch';
export const INPUT = z.object({ branch: z.string() });
export const CONFIRMATION = z.object({ confirm: z.boolean() });
export const QUESTION_SCHEMA = {
  type: 'object',
  properties: { confirm: { type: 'boolean', title: 'Deploy?' } },
  required: ['confirm'],
};

export const question = (branch) => `Deploy ${branch} to production?`;
export const resultText = (branch) => `deployed ${branch}`;

const META = {
  'io.modelcontextprotocol/protocolVersion': REVISION,
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'bench-client', version: '1.0.0' },
};

export function asking(id, branch) {
  return request(id, { name: TOOL, arguments: { branch }, _meta: META });
}

export function answered(id, branch, key, requestState) {
  const inputResponses = { [key]: { action: 'accept', content: { confirm: true } } };
  return request(id, { name: TOOL, arguments: { branch }, _meta: META, inputResponses, requestState });
}

function request(id, params) {
  return { jsonrpc: '2.0', id, method: 'tools/call', params };
}
