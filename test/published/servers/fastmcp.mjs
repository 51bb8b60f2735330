// The session that the framework makes for each of its own transports.
import { FastMCPSession } from 'fastmcp';

export default () => {
  const session = new FastMCPSession({
    logger: console,
    name: 'fast',
    version: '1.0.0',
    prompts: [],
    resources: [],
    resourcesTemplates: [],
    tools: [{ name: 'ask', execute: () => ask(session) }],
    ping: { enabled: false },
    roots: { enabled: false },
  });
  return session;
};

async function ask(session) {
  const { content } = await session.requestElicitation({
    message: 'name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  });
  return `Hello ${content.name}`;
}
