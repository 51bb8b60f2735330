// Everything the official MCP conformance suite asks of a server, for 2025-11-25 and 2026-07-28 clients alike,
// written once, await style, on @modelcontextprotocol/sdk v1: no tool here knows which revision it is talking to.
// Serve it with `mcp-await serve examples/conformance-server.ts`.
import { setTimeout as sleep } from 'node:timers/promises';
import { completable } from '@modelcontextprotocol/sdk/server/completable.js';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  type CallToolResult,
  CreateMessageResultSchema,
  type ElicitRequestFormParams,
  type ElicitResult,
  type GetPromptResult,
  type PromptMessage,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

// One red pixel, and a WAV header without samples.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';

const text = (value: string) => ({ type: 'text' as const, text: value });
const image = { type: 'image' as const, data: PNG, mimeType: 'image/png' };
const reply = (value: string): CallToolResult => ({ content: [text(value)] });
const prompt = (...contents: PromptMessage['content'][]): GetPromptResult => ({
  messages: contents.map((content) => ({ role: 'user', content })),
});

/** The `_meta` that names an ask, so that a 2026-07-28 client finds it in `inputRequests` under that name. */
const key = (name: string) => ({ 'mcp-await/key': name });

/** A form of required fields. */
const form = (
  properties: ElicitRequestFormParams['requestedSchema']['properties'],
): ElicitRequestFormParams['requestedSchema'] => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
});

const nameForm = form({ name: { type: 'string' } });
const okForm = form({ ok: { type: 'boolean' } });

const field = (answer: ElicitResult, name: string) => String(answer.content?.[name] ?? `(${answer.action})`);
const outcome = ({ action, content }: ElicitResult) =>
  `action=${action}, content=${JSON.stringify(content ?? {})}`;

/** What no zod type says goes into the schema as it stands. */
const contact = z
  .object({
    name: z.string().optional(),
    address: z.object({ street: z.string().optional(), city: z.string().optional() }).optional(),
    contactMethod: z.enum(['phone', 'email']).optional(),
    phone: z.string().optional(),
    email: z.string().optional(),
  })
  .meta({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $defs: {
      address: {
        $anchor: 'addressDef',
        type: 'object',
        properties: { street: { type: 'string' }, city: { type: 'string' } },
      },
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
  });

export default function conformanceServer(): McpServer {
  const server = new McpServer(
    { name: 'mcp-await-conformance', version: '1.0.0' },
    { capabilities: { logging: {}, resources: { subscribe: true } } },
  );
  tools(server);
  asks(server);
  tasks(server);
  resources(server);
  prompts(server);
  return server;
}

function tools(server: McpServer): void {
  server.registerTool('test_simple_text', { description: 'Returns text' }, () =>
    reply('This is a simple text response for testing.'),
  );

  server.registerTool(
    'json_schema_2020_12_tool',
    { description: 'Tool with JSON Schema 2020-12 features', inputSchema: contact },
    ({ name = 'nobody' }) => reply(`Noted ${name}`),
  );

  server.registerTool(
    'test_custom_header',
    {
      description: 'Has an argument that clients of 2026-07-28 say in a header as well',
      inputSchema: { region: z.string().meta({ 'x-mcp-header': 'Region' }) },
    },
    ({ region }) => reply(`Region: ${region}`),
  );

  server.registerTool('test_image_content', { description: 'Returns an image' }, () => ({
    content: [image],
  }));

  server.registerTool('test_audio_content', { description: 'Returns audio' }, () => ({
    content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }],
  }));

  server.registerTool('test_embedded_resource', { description: 'Returns an embedded resource' }, () => ({
    content: [
      {
        type: 'resource',
        resource: {
          uri: 'test://embedded-resource',
          mimeType: 'text/plain',
          text: 'This is an embedded resource content.',
        },
      },
    ],
  }));

  server.registerTool(
    'test_multiple_content_types',
    { description: 'Returns text, image and resource' },
    () => ({
      content: [
        text('Multiple content types test:'),
        image,
        {
          type: 'resource',
          resource: {
            uri: 'test://mixed-content-resource',
            mimeType: 'application/json',
            text: JSON.stringify({ test: 'data', value: 123 }),
          },
        },
      ],
    }),
  );

  server.registerTool('test_error_handling', { description: 'Always throws' }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });

  server.registerTool('test_tool_with_logging', { description: 'Logs as it goes' }, async (extra) => {
    const log = (data: string) =>
      extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
    await log('Tool execution started');
    await sleep(50);
    await log('Tool processing data');
    await sleep(50);
    await log('Tool execution completed');
    return reply('Tool with logging executed successfully');
  });

  server.registerTool('test_logging_tool', { description: 'Logs one message' }, async () => {
    await server.sendLoggingMessage({ level: 'info', data: 'A log message' });
    return reply('Logged');
  });

  server.registerTool('test_tool_with_progress', { description: 'Reports its progress' }, async (extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progress > 0) await sleep(50);
      if (progressToken === undefined) continue;
      await extra.sendNotification({
        method: 'notifications/progress',
        params: { progressToken, progress, total: 100 },
      });
    }
    return reply('Tool with progress executed successfully');
  });

  server.registerTool('test_reconnection', { description: 'Ends its own stream mid-call' }, async (extra) => {
    await sleep(50);
    extra.closeSSEStream?.();
    await sleep(100);
    return reply('Reconnection test completed successfully');
  });

  server.registerTool('test_trigger_tool_change', { description: 'Announces a changed tool list' }, () => {
    server.sendToolListChanged();
    return reply('Tool list change announced');
  });

  server.registerTool(
    'test_trigger_prompt_change',
    { description: 'Announces a changed prompt list' },
    () => {
      server.sendPromptListChanged();
      return reply('Prompt list change announced');
    },
  );
}

/** The tools that need the client in their middle. */
function asks(server: McpServer): void {
  server.registerTool(
    'test_sampling',
    { description: 'Asks the model of the client', inputSchema: { prompt: z.string() } },
    async ({ prompt }, extra) => {
      const { content } = await extra.sendRequest(
        {
          method: 'sampling/createMessage',
          params: { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 },
        },
        CreateMessageResultSchema,
      );
      return reply(`LLM response: ${content.type === 'text' ? content.text : content.type}`);
    },
  );

  server.registerTool(
    'test_elicitation',
    { description: 'Asks the user for two fields', inputSchema: { message: z.string() } },
    async ({ message }, extra) => {
      const answer = await server.server.elicitInput(
        {
          message,
          requestedSchema: form({
            username: { type: 'string', description: "User's response" },
            email: { type: 'string', description: "User's email address" },
          }),
        },
        { relatedRequestId: extra.requestId },
      );
      return reply(`User response: ${outcome(answer)}`);
    },
  );

  server.registerTool(
    'test_elicitation_sep1034_defaults',
    { description: 'Asks with a default for every primitive type' },
    async (extra) => {
      const answer = await server.server.elicitInput(
        {
          message: 'Please review and update the form fields with defaults',
          requestedSchema: {
            type: 'object',
            properties: {
              name: { type: 'string', default: 'John Doe' },
              age: { type: 'integer', default: 30 },
              score: { type: 'number', default: 95.5 },
              status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
              verified: { type: 'boolean', default: true },
            },
          },
        },
        { relatedRequestId: extra.requestId },
      );
      return reply(`Elicitation completed: ${outcome(answer)}`);
    },
  );

  server.registerTool(
    'test_elicitation_sep1330_enums',
    { description: 'Asks with every kind of enumeration' },
    async (extra) => {
      const options = ['option1', 'option2', 'option3'];
      const titled = (noun: string) =>
        ['First', 'Second', 'Third'].map((nth, i) => ({ const: `value${i + 1}`, title: `${nth} ${noun}` }));
      const answer = await server.server.elicitInput(
        {
          message: 'Please select options from the enum fields',
          requestedSchema: {
            type: 'object',
            properties: {
              untitledSingle: { type: 'string', enum: options },
              titledSingle: { type: 'string', oneOf: titled('Option') },
              legacyEnum: {
                type: 'string',
                enum: ['opt1', 'opt2', 'opt3'],
                enumNames: ['Option One', 'Option Two', 'Option Three'],
              },
              untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
              titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
            },
          },
        },
        { relatedRequestId: extra.requestId },
      );
      return reply(`Elicitation completed: ${outcome(answer)}`);
    },
  );

  server.registerTool('test_streaming_elicitation', { description: 'Asks the user to confirm' }, async () => {
    const answer = await server.server.elicitInput({ message: 'Go on?', requestedSchema: okForm });
    return reply(`User response: ${outcome(answer)}`);
  });

  server.registerTool('test_missing_capability', { description: 'Cannot do without sampling' }, async () => {
    await server.server.createMessage({
      messages: [{ role: 'user', content: text('Hello') }],
      maxTokens: 10,
    });
    return reply('The client can sample');
  });

  server.registerTool(
    'test_input_required_result_elicitation',
    { description: 'Asks the user for a name' },
    async () => {
      const answer = await server.server.elicitInput({
        message: 'What is your name?',
        requestedSchema: nameForm,
        _meta: key('user_name'),
      });
      return reply(`Hello, ${field(answer, 'name')}!`);
    },
  );

  server.registerTool(
    'test_input_required_result_sampling',
    { description: 'Asks the model of the client for a capital' },
    async () => {
      const { content } = await server.server.createMessage({
        messages: [{ role: 'user', content: text('What is the capital of France?') }],
        maxTokens: 100,
        _meta: key('capital_question'),
      });
      return reply(content.type === 'text' ? content.text : content.type);
    },
  );

  server.registerTool(
    'test_input_required_result_list_roots',
    { description: 'Asks for the roots of the client' },
    async () => {
      const { roots } = await server.server.listRoots({ _meta: key('client_roots') });
      return reply(`Roots: ${roots.map(({ uri }) => uri).join(', ')}`);
    },
  );

  server.registerTool(
    'test_input_required_result_request_state',
    { description: 'Asks the user to confirm, and goes on from there' },
    async () => {
      await server.server.elicitInput({
        message: 'Please confirm',
        requestedSchema: okForm,
        _meta: key('confirm'),
      });
      return reply('state-ok');
    },
  );

  server.registerTool(
    'test_input_required_result_multiple_inputs',
    { description: 'Asks for three things at once' },
    async () => {
      const [name, greeting, { roots }] = await Promise.all([
        server.server.elicitInput({
          message: 'What is your name?',
          requestedSchema: nameForm,
          _meta: key('user_name'),
        }),
        server.server.createMessage({
          messages: [{ role: 'user', content: text('Generate a greeting') }],
          maxTokens: 50,
          _meta: key('greeting'),
        }),
        server.server.listRoots({ _meta: key('client_roots') }),
      ]);
      const words = greeting.content.type === 'text' ? greeting.content.text : greeting.content.type;
      return reply(`${words} ${field(name, 'name')}, you have ${roots.length} root(s).`);
    },
  );

  server.registerTool(
    'test_input_required_result_multi_round',
    { description: 'Asks twice, one after the other' },
    async () => {
      const first = await server.server.elicitInput({
        message: 'Step 1: What is your name?',
        requestedSchema: nameForm,
        _meta: key('step1'),
      });
      const second = await server.server.elicitInput({
        message: 'Step 2: What is your favorite color?',
        requestedSchema: form({ color: { type: 'string' } }),
        _meta: key('step2'),
      });
      return reply(`${field(first, 'name')} likes ${field(second, 'color')}.`);
    },
  );

  server.registerTool(
    'test_input_required_result_tampered_state',
    { description: 'Asks the user to confirm' },
    async () => {
      const answer = await server.server.elicitInput({
        message: 'Please confirm',
        requestedSchema: okForm,
        _meta: key('confirm'),
      });
      return reply(`Confirmed: ${field(answer, 'ok')}`);
    },
  );

  server.registerTool(
    'test_input_required_result_capabilities',
    { description: 'Asks for what the client can answer' },
    async () => {
      const can = server.server.getClientCapabilities();
      const answers = await Promise.all([
        can?.elicitation && server.server.elicitInput({ message: 'Your name?', requestedSchema: nameForm }),
        can?.sampling &&
          server.server.createMessage({
            messages: [{ role: 'user', content: text('Hello') }],
            maxTokens: 10,
          }),
      ]);
      return reply(`Answers: ${answers.filter(Boolean).length}`);
    },
  );
}

/** Says that a tool may be a task, or must be one; and that it asks before it is. */
const asTask = (support: 'optional' | 'required', when: 'now' | 'after-asks' = 'now') => ({
  'mcp-await/tasks': { support, when },
});

function tasks(server: McpServer): void {
  server.registerTool(
    'greet',
    { description: 'Greets at once', inputSchema: { name: z.string() } },
    ({ name }) => reply(`Hello, ${name}!`),
  );

  server.registerTool(
    'slow_compute',
    {
      description: 'Takes its time',
      inputSchema: { seconds: z.number(), label: z.string().optional() },
      _meta: asTask('optional'),
    },
    async ({ seconds, label = 'it' }, { signal }) => {
      await sleep(seconds * 1_000, undefined, { signal });
      return reply(`Computed ${label} in ${seconds} s`);
    },
  );

  server.registerTool('failing_job', { description: 'Always throws', _meta: asTask('required') }, () => {
    throw new Error('This job fails');
  });

  server.registerTool(
    'protocol_error_job',
    { description: 'Returns what is no result', _meta: asTask('required') },
    () => ({ content: 'none' }) as unknown as CallToolResult,
  );

  server.registerTool(
    'confirm_delete',
    {
      description: 'Deletes a file that the user confirms',
      inputSchema: { filename: z.string() },
      _meta: asTask('optional'),
    },
    async ({ filename }) => {
      const answer = await server.server.elicitInput({
        message: `Delete ${filename}?`,
        requestedSchema: form({ confirm: { type: 'boolean' } }),
      });
      return reply(answer.content?.confirm === true ? `Deleted ${filename}` : `Kept ${filename}`);
    },
  );

  server.registerTool(
    'multi_input',
    { description: 'Asks two things at once', _meta: asTask('optional') },
    async () => {
      const [first, second] = await Promise.all([
        server.server.elicitInput({ message: 'Your name?', requestedSchema: nameForm }),
        server.server.elicitInput({
          message: 'Sure?',
          requestedSchema: form({ confirm: { type: 'boolean' } }),
        }),
      ]);
      return reply(`${field(first, 'name')}: ${field(second, 'confirm')}`);
    },
  );

  server.registerTool(
    'test_tool_with_task',
    { description: 'Asks before it is a task', _meta: asTask('required', 'after-asks') },
    async () => {
      const answer = await server.server.elicitInput({
        message: 'What is your name?',
        requestedSchema: nameForm,
        _meta: key('user_name'),
      });
      await sleep(100);
      return reply(`Hello, ${field(answer, 'name')}!`);
    },
  );
}

function resources(server: McpServer): void {
  server.registerResource(
    'static-text',
    'test://static-text',
    { description: 'A static text resource', mimeType: 'text/plain' },
    ({ href }) => ({
      contents: [
        { uri: href, mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
      ],
    }),
  );

  server.registerResource(
    'static-binary',
    'test://static-binary',
    { description: 'A static binary resource', mimeType: 'image/png' },
    ({ href }) => ({ contents: [{ uri: href, mimeType: 'image/png', blob: PNG }] }),
  );

  server.registerResource(
    'watched-resource',
    'test://watched-resource',
    { description: 'A resource to subscribe to', mimeType: 'text/plain' },
    ({ href }) => ({ contents: [{ uri: href, mimeType: 'text/plain', text: 'Watched resource content' }] }),
  );

  server.registerResource(
    'template',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { description: 'A resource for every id', mimeType: 'application/json' },
    ({ href }, { id }) => ({
      contents: [
        {
          uri: href,
          mimeType: 'application/json',
          text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
        },
      ],
    }),
  );

  // These resources never change, so there is nothing to keep about who watches them.
  server.server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
}

function prompts(server: McpServer): void {
  server.registerPrompt('test_simple_prompt', { description: 'A prompt without arguments' }, () =>
    prompt(text('This is a simple prompt for testing.')),
  );

  const words = (value: string) => ['paris', 'park', 'party'].filter((word) => word.startsWith(value));
  server.registerPrompt(
    'test_prompt_with_arguments',
    {
      description: 'A prompt with two arguments',
      argsSchema: { arg1: completable(z.string(), words), arg2: completable(z.string(), words) },
    },
    ({ arg1, arg2 }) => prompt(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  );

  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'A prompt with a resource in it', argsSchema: { resourceUri: z.string() } },
    ({ resourceUri }) =>
      prompt(
        {
          type: 'resource',
          resource: {
            uri: resourceUri,
            mimeType: 'text/plain',
            text: 'Embedded resource content for testing.',
          },
        },
        text('Please process the embedded resource above.'),
      ),
  );

  server.registerPrompt('test_prompt_with_image', { description: 'A prompt with an image in it' }, () =>
    prompt(image, text('Please analyze the image above.')),
  );

  server.registerPrompt(
    'test_input_required_result_prompt',
    { description: 'A prompt that asks the user for context' },
    async () => {
      const answer = await server.server.elicitInput({
        message: 'What context should the prompt use?',
        requestedSchema: form({ context: { type: 'string' } }),
        _meta: key('user_context'),
      });
      return prompt(text(`Use this context: ${field(answer, 'context')}`));
    },
  );
}
