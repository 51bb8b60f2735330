/** A tool of Mastra that asks. */
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

interface Options {
  elicitation: { sendRequest(request: object): Promise<{ content?: Record<string, unknown> }> };
  extra: { authInfo?: { clientId: string } };
}

export const greet = createTool({
  id: 'greet',
  description: 'Greets its user by name',
  inputSchema: z.object({}),
  execute: async (_context, options) => {
    const { elicitation, extra } = options as unknown as Options;
    const answer = await elicitation.sendRequest({
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    return `${extra.authInfo?.clientId}: ${answer.content?.name}`;
  },
});
