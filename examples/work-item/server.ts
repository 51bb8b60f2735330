// Updates a work item in a tracker whose rules want more fields as its state changes: a bug that is resolved needs a
// resolution, a duplicate needs the original, and a fixed one needs a cause. The next question depends on the answers
// so far, so the tool asks in a loop and keeps no state of its own: the journal has it.
//
//   npx mcp-await serve examples/work-item/server.ts
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult, ElicitRequestFormParams } from '@modelcontextprotocol/sdk/types.js';
import { step } from 'mcp-await';
import { z } from 'zod';

type Fields = Record<string, string>;
type Schema = ElicitRequestFormParams['requestedSchema']['properties'][string];

/** One field of a work item, the fields that make it necessary, and how it is asked for. */
interface Rule {
  readonly field: string;
  readonly when: Fields;
  readonly question: string;
  readonly schema: Schema;
}

const RULES: readonly Rule[] = [
  {
    field: 'Resolution',
    when: { State: 'Resolved' },
    question: 'How was it resolved?',
    schema: { type: 'string', enum: ['Duplicate', 'Fixed', 'By design', 'Cannot reproduce'] },
  },
  {
    field: 'DuplicateOf',
    when: { Resolution: 'Duplicate' },
    question: 'Which work item is it a duplicate of?',
    schema: { type: 'string', minLength: 1 },
  },
  {
    field: 'RootCause',
    when: { Resolution: 'Fixed' },
    question: 'What was the cause?',
    schema: { type: 'string', enum: ['Code', 'Configuration', 'Specification'] },
  },
];

/** The first field that the rules require and that is still empty. */
function missing(fields: Fields): Rule | undefined {
  const applies = ({ field, when }: Rule): boolean =>
    fields[field] === undefined && Object.entries(when).every(([name, value]) => fields[name] === value);
  return RULES.find(applies);
}

export default function buildServer(): McpServer {
  const server = new McpServer({ name: 'work-items', version: '1.0.0' });

  server.registerTool(
    'update_work_item',
    {
      description: 'Changes fields of a work item, and asks for those that the rules want besides',
      inputSchema: { id: z.number().int(), fields: z.record(z.string(), z.string()) },
    },
    async ({ id, fields: wanted }) => {
      const fields: Fields = { ...wanted };
      for (let rule = missing(fields); rule !== undefined; rule = missing(fields)) {
        const { field, question, schema } = rule;
        const answer = await server.server.elicitInput({
          message: `Work item ${id}: ${question}`,
          requestedSchema: { type: 'object', properties: { [field]: schema }, required: [field] },
          // On the revisions that name their questions, this one goes by the name of its field.
          _meta: { 'mcp-await/key': field },
        });
        if (answer.action !== 'accept') return text(`Work item ${id} was left as it is.`);
        fields[field] = String(answer.content?.[field]);
      }
      const revision = await step('update', () => update(id, fields));
      const told = Object.entries(fields).map(([name, value]) => `${name} = ${value}`);
      return text(`Work item ${id} is at revision ${revision}: ${told.join(', ')}.`);
    },
  );

  return server;
}

/** Stands for the tracker: it counts the fields it was given. */
function update(id: number, fields: Fields): number {
  return id + Object.keys(fields).length;
}

function text(message: string): CallToolResult {
  return { content: [{ type: 'text', text: message }] };
}
