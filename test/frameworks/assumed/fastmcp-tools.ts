/** Tools of npm `fastmcp`. */
import type { FastMCPSession, Tool } from 'fastmcp';

export function toolsFor(session: () => FastMCPSession): Tool<Record<string, unknown> | undefined>[] {
  return [
    {
      name: 'greet',
      description: 'Greets its user by name',
      execute: async (_args, context) => {
        const answer = await session().requestElicitation({
          message: 'What is your name?',
          requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
        });
        return `${context.session?.clientId}: ${answer.content?.name}`;
      },
    },
  ];
}
