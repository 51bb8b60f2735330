/** As much of Workers as the examples use. `npx wrangler types` writes all of it for your own project. */
declare module 'cloudflare:workers' {
  interface Storage {
    get(key: string): Promise<unknown>;
    put(key: string, value: unknown): Promise<void>;
    delete(key: string): Promise<boolean>;
    list(): Promise<Map<string, unknown>>;
    getAlarm(): Promise<number | null>;
    setAlarm(at: number): Promise<void>;
  }
  export abstract class DurableObject {
    protected readonly ctx: { readonly storage: Storage };
    alarm?(): Promise<void>;
  }
  export const env: {
    readonly MCP_AWAIT_SECRET: string;
    readonly CALLS: {
      idFromName(name: string): object;
      get(id: object): {
        get(key: string): Promise<unknown>;
        set(key: string, value: unknown): Promise<void>;
        insertIfAbsent(key: string, value: unknown): Promise<boolean>;
        delete(key: string): Promise<boolean>;
      };
    };
  };
}
