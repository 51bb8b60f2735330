/** The client that the official conformance suite starts: SDK v1's, on our transport. Arguments: the server's URL. */
import { type OAuthClientProvider, UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import type { OAuthClientInformationMixed, OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { AwaitClientTransport } from 'mcp-await/client';

const [url = ''] = process.argv.slice(2);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const given: Given = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
/** A server without the draft answers with its own version, and is served on that. */
const revision =
  process.env.MCP_CONFORMANCE_PROTOCOL_VERSION === '2026-07-28' ? '2026-07-28' : 'DRAFT-SEP-2322';
const SIGN_INS = 2;

/** What a scenario tells its client. */
interface Given {
  readonly client_id?: string;
  readonly client_secret?: string;
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: Record<string, unknown> }[];
}

interface Property {
  readonly type?: string;
}

/** A user who signs in at once: the suite's page redirects without a question. */
class User implements OAuthClientProvider {
  readonly redirectUrl = 'http://127.0.0.1:3333/callback';
  readonly clientMetadataUrl = 'https://conformance-test.local/client-metadata.json';
  readonly clientMetadata = {
    client_name: 'desk',
    redirect_uris: [this.redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: 'native',
  };
  code: string | undefined;
  #client: OAuthClientInformationMixed | undefined =
    given.client_id === undefined
      ? undefined
      : {
          client_id: given.client_id,
          ...(given.client_secret !== undefined && { client_secret: given.client_secret }),
        };
  #tokens: OAuthTokens | undefined;
  #verifier = '';

  clientInformation() {
    return this.#client;
  }
  saveClientInformation(client: OAuthClientInformationMixed): void {
    this.#client = client;
  }
  tokens() {
    return this.#tokens;
  }
  saveTokens(tokens: OAuthTokens): void {
    this.#tokens = tokens;
  }
  codeVerifier() {
    return this.#verifier;
  }
  saveCodeVerifier(verifier: string): void {
    this.#verifier = verifier;
  }
  async redirectToAuthorization(page: URL): Promise<void> {
    const { headers } = await fetch(page, { redirect: 'manual' });
    this.code = new URL(headers.get('location') ?? '').searchParams.get('code') ?? undefined;
  }
}

const user = new User();
let { client, transport } = open();

function open() {
  const transport = new AwaitClientTransport(url, {
    revision,
    ...(scenario.startsWith('auth/') && { authProvider: user }),
  });
  const elicitation = { form: { applyDefaults: true } };
  const client = new Client({ name: 'desk', version: '1.0.0' }, { capabilities: { elicitation } });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    const asked = 'requestedSchema' in params ? Object.keys(params.requestedSchema.properties) : [];
    return { action: 'accept', content: asked.includes('confirmed') ? { confirmed: true } : {} };
  });
  return { client, transport };
}

/** Again after each sign-in, `SIGN_INS` times: more of them is a server that never has enough. */
async function signedIn<T>(run: () => Promise<T>, onSignIn = () => {}): Promise<T> {
  for (let times = 0; ; times++) {
    try {
      return await run();
    } catch (thrown) {
      if (!(thrown instanceof UnauthorizedError) || user.code === undefined || times === SIGN_INS)
        throw thrown;
      await transport.finishAuth(user.code);
      user.code = undefined;
      onSignIn();
    }
  }
}

await signedIn(
  () => client.connect(transport),
  () => {
    ({ client, transport } = open());
  },
);
const { tools } = await signedIn(() => client.listTools());
/** A value of the property's type; for an object the schema of the first tool, which one of the scenarios has echoed. */
const example = ({ type }: Property): unknown =>
  ({ number: 5, integer: 5, boolean: true, object: tools[0]?.inputSchema })[type ?? ''] ?? 'x';
for (const { name, inputSchema } of tools) {
  const properties = Object.entries(inputSchema.properties ?? {});
  const filled = Object.fromEntries(
    properties.map(([key, property]) => [key, example(property as Property)]),
  );
  const calls = given.toolCalls?.filter((call) => call.name === name) ?? [{ arguments: filled }];
  for (const call of calls) {
    await signedIn(() => client.callTool({ name, arguments: call.arguments })).catch((thrown) =>
      process.stderr.write(`${name}: ${thrown}\n`),
    );
  }
}
await client.close();
