/**
 * The checks that SDK v2 makes at its HTTP edge before a request reaches the server: the OAuth scopes of its tools,
 * prompts and resources (2.1), and the headers that mirror a tool's arguments (`x-mcp-header`, 2.4).
 */
import { AwaitError, isObject, type JsonObject, objectOf } from '../base/values.ts';
import type { HostServer } from './host.ts';
import type { ChallengeContext, ScopeResolver } from './transport.ts';

/** The SDK's reply to a caller who lacks a scope. */
export interface Challenge {
  readonly scopes: readonly string[];
  readonly errorDescription?: string;
}

/** The checks of one server. */
export interface Guards {
  /** Whether anything in it declares scopes. */
  readonly hasScopes: boolean;
  /** @returns the challenge as the server gave it, which may be of any shape */
  challenge(context: ChallengeContext): unknown;
  /** A tool's input schema, where the SDK looks for `x-mcp-header`; undefined if the server does not expose one. */
  inputSchema(tool: string): JsonObject | undefined;
}

/** Private maps in which an SDK v2 `McpServer` keeps its tools, prompts and resources. */
const REGISTRIES = [
  '_registeredTools',
  '_registeredResources',
  '_registeredResourceTemplates',
  '_registeredPrompts',
];

/** Whether a tool's input schema names a header for any of its arguments (SEP-2243). */
export function mirrorsArguments(schema: unknown): schema is JsonObject {
  return isObject(schema) && JSON.stringify(schema).includes('"x-mcp-header"');
}

/**
 * @param resolver set by the server on its transport
 * @returns undefined for a server without checks: of SDK v1, of SDK v2 before 2.1, or low-level
 */
export function guardsOf(server: HostServer, resolver: ScopeResolver | undefined): Guards | undefined {
  const schemaOf = 'toolInputSchemaJson' in server ? server.toolInputSchemaJson : undefined;
  if (resolver === undefined && typeof schemaOf !== 'function') return undefined;
  return {
    get hasScopes() {
      return resolver !== undefined && REGISTRIES.some((name) => declares(Reflect.get(server, name)));
    },
    challenge: (context) => resolver?.(context),
    inputSchema: (tool) => {
      const schema: unknown = typeof schemaOf === 'function' ? schemaOf.call(server, tool) : undefined;
      return isObject(schema) ? schema : undefined;
    },
  };
}

/** A registry that cannot be read (a framework hides its `McpServer`) may declare scopes, so it counts as declaring. */
function declares(registry: unknown): boolean {
  if (!isObject(registry)) return true;
  return Object.values(registry).some((entry) => !isObject(entry) || entry.scopeChallenge !== undefined);
}

/** @throws AwaitError `internal` for a value that is not a challenge */
export function readChallenge(value: unknown): Challenge | undefined {
  if (value === undefined) return undefined;
  const { scopes, errorDescription } = objectOf(value);
  const isSound =
    Array.isArray(scopes) && (errorDescription === undefined || typeof errorDescription === 'string');
  if (!isSound) throw new AwaitError('internal', 'a scope challenge must be { scopes, errorDescription? }');
  return {
    scopes: scopes as string[],
    ...(typeof errorDescription === 'string' && { errorDescription }),
  };
}
