/**
 * The example messages of both drafts, apart from white space. Examples that are not JSON are corrected, and `mended`
 * says how.
 */

/** The text in the draft, and its mistake. */
interface Example {
  readonly text: string;
  /** What to replace with what, once. */
  readonly mended?: readonly [string | RegExp, string];
}

function parsed<Names extends string>(examples: Record<Names, Example>): Record<Names, Message> {
  const entries = Object.entries<Example>(examples).map(([name, { text, mended }]) => {
    const json = mended === undefined ? text : text.replace(mended[0], mended[1]);
    return [name, JSON.parse(json) as Message];
  });
  return Object.fromEntries(entries) as Record<Names, Message>;
}

// biome-ignore lint/suspicious/noExplicitAny: messages of any form, compared as a whole
export type Message = Readonly<Record<string, any>>;

const LOGIN = `{
      "method": "elicitation/create",
      "params": {
        "mode": "form",
        "message": "Please provide your GitHub username",
        "requestedSchema": {
          "type": "object",
          "properties": { "name": { "type": "string" } },
          "required": ["name"]
        }
      }
    }`;

const CAPITAL = `{
    "method": "sampling/createMessage",
    "params": {
      "messages": [{ "role": "user", "content": { "type": "text", "text": "What is the capital of France?" } }],
      "modelPreferences": {
        "hints": [{ "name": "claude-3-sonnet" }],
        "intelligencePriority": 0.8,
        "speedPriority": 0.5
      },
      "systemPrompt": "You are a helpful assistant.",
      "maxTokens": 100
    }
  }`;

const CAPITAL_ANSWER = `{
      "role": "assistant",
      "content": { "type": "text", "text": "The capital of France is Paris." },
      "model": "claude-3-sonnet-20240307",
      "stopReason": "endTurn"
    }`;

const WEATHER = `{
  "jsonrpc": "2.0", "id": 2, "method": "tools/call",
  "params": { "name": "get_weather", "arguments": { "location": "New York" } }
}`;

const TASK_ID = 'echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5';
const RELATED = `"_meta": { "io.modelcontextprotocol/related-task": { "taskId": "${TASK_ID}" } }`;

const taskState = (id: number, status: string, message: string): Example => ({
  text: `{
    "id": ${id}, "jsonrpc": "2.0",
    "result": {
      "taskId": "${TASK_ID}", "status": "${status}", "statusMessage": "${message}",
      "createdAt": "2026-01-27T03:38:07.7534643Z", "ttl": 60000, "pollInterval": 100
    },
  }`,
  // A comma after the last member.
  mended: [/\},\s*\}$/, '}}'],
});
const taskRequest = (id: number, method: string): Example => ({
  text: `{ "jsonrpc": "2.0", "id": ${id}, "method": "${method}", "params": { "taskId": "${TASK_ID}" } }`,
});

const ECHO_INPUT = `{
        "method": "elicitation/create",
        "params": {
          "mode": "form",
          "message": "Please provide the input string to echo back",
          "requestedSchema": {
            "type": "object",
            "properties": { "input": { "type": "string" } },
            "required": ["input"]
          }
        }
      }`;

/** The first draft. */
export const FIRST = parsed({
  call: { text: WEATHER },
  incomplete: {
    text: `{ "jsonrpc": "2.0", "id": 2, "input_requests": { "github_login": ${LOGIN} }, "request_state": "foo" }`,
  },
  retry: {
    text: `{
      "jsonrpc": "2.0", "id": 3, "method": "tools/call",
      "params": { "name": "get_weather", "arguments": { "location": "New York" } }
      "input_responses": { "github_login": { "result": { "action": "accept", "content": { "name": "octocat" } } } },
      "request_state": "foo"
    }`,
    // No comma after `params`.
    mended: [/\}\s*"input_responses"/, '}, "input_responses"'],
  },
  result: {
    text: `{
      "jsonrpc": "2.0", "id": 3,
      "result": {
        "content": [{ "type": "text", "text": "Current weather in New York:\\nTemperature: 72Â°F\\nConditions: Partly cloudy" }],
        "isError": false
      }
    }`,
  },
  inputRequests: {
    // Printed as a member without its object, with comments; here it is the object.
    text: `{ "github_login": ${LOGIN}, "capital_of_france" : ${CAPITAL} }`,
  },
  inputResponses: {
    text: `{
      "github_login": { "result": { "action": "accept", "content": { "name": "octocat" } } },
      "capital_of_france": { "result": ${CAPITAL_ANSWER} }
    }`,
  },
  taskCall: {
    text: `{ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "echo", "task": { "ttl": 60000 } } }`,
  },
  taskCreated: {
    text: `{
      "id": 1, "jsonrpc": "2.0",
      "result": {
        "task": {
          "taskId": "${TASK_ID}", "status": "Working",
          "statusMessage": "Task has been created for echo tool invocation.",
          "createdAt": "2026-01-27T03:32:48.3148180Z", "ttl": 60000, "pollInterval": 100
        }
      }
    }`,
  },
  taskGet: taskRequest(2, 'tasks/get'),
  taskAsks: taskState(2, 'input_required', 'Input Required to Proceed call tasks/result'),
  taskResult: taskRequest(3, 'tasks/result'),
  taskInput: {
    text: `{ "id": 3, "jsonrpc": "2.0", "input_requests": { "echo_input": ${ECHO_INPUT} }, ${RELATED} }`,
  },
  taskAnswer: {
    text: `{
      "jsonrpc": "2.0", "id": 4,
      "input_responses": { "echo_input": { "result": { "action": "accept", "content": { "input": "Hello World!" } } } },
      ${RELATED}
    }`,
  },
  taskCompleted: taskState(5, 'Completed', 'Task has been completed successfully, call get/result'),
  taskOutcome: {
    text: `{
      "id": 6, "jsonrpc": "2.0",
      "result": { "isError": false, "content": [{ "type": "text", "text": "Echo: Hello World!" }], ${RELATED} },
    }`,
    // A comma after the last member.
    mended: [/\},\s*\}$/, '}}'],
  },
});

/** SEP-2322 as approved; its maps are printed as those of the first draft. */
export const SEP = parsed({
  inputRequests: { text: `{ "github_login": ${LOGIN}, "capital_of_france": ${CAPITAL} }` },
  inputResponses: {
    text: `{
      "github_login": { "action": "accept", "content": { "name": "octocat" } },
      "capital_of_france": ${CAPITAL_ANSWER}
    }`,
  },
  /** Without a `requestState`. */
  inputRequired: {
    text: `{
      "jsonrpc": "2.0", "id": 2,
      "result": { "resultType": "input_required", "inputRequests": { "github_login": ${LOGIN} } }
    }`,
  },
  taskAnswer: {
    text: `{
      "jsonrpc": "2.0", "id": 4, "method": "tasks/input_response",
      "params": {
        "inputResponses": {
          "echo_input": {
            "action": "accept",
            "content": { "not_requested_parameter": "Information the server did not request." }
          }
        },
        ${RELATED}
      }
    }`,
  },
  taskAnswered: { text: `{ "id": 4, "jsonrpc": "2.0", "result": { ${RELATED} } }` },
});

/** As it is, under another id. */
export function under(id: unknown, message: Message): Message {
  return { ...message, id };
}
