/**
 * A process of a comparison. It loads one version of a server, opens sites of it on its parent's orders, and uses each
 * site's store, relay and log in its parent.
 */
import { loadFactory } from '../cli/load.ts';
import type { HostFactory } from '../host/host.ts';
import { stdioHost } from '../proxy/stdio-host.ts';
import { ModuleCounts } from './effects/module-counts.ts';
import { observeEffects } from './effects/observer.ts';
import { Ipc } from './ipc.ts';
import { openSite, type Site, type SiteConfig, type Surroundings } from './site.ts';

const sites = new Map<string, Site>();
/** By the site's id and the name that is listened to. */
const listeners = new Map<string, (message: string) => void>();
/** Of a module; a command's is not seen. */
let counts: ModuleCounts | undefined;
const parent = new Ipc(process, {
  ready: async () => void (await server),
  open: async (id: string, config: SiteConfig) => {
    const site = await openSite((await server)(), config, surroundingsOf(id));
    sites.set(id, site);
    return site.url;
  },
  counts: () => counts?.read() ?? {},
  counted: () => counts?.close(),
  close: async (id: string) => {
    await sites.get(id)?.close();
    sites.delete(id);
  },
  hear: (id: string, name: string, message: string) => listeners.get(`${id} ${name}`)?.(message),
});

const server = serverOf(process.argv.slice(2));
// `ready` reports the failure; it must not be an unhandled rejection before.
server.catch(() => {});

/**
 * A module's path, or a command behind `--`. A handler that is closed ends the servers of its command, so each site
 * has a host of its own.
 */
async function serverOf([first = '', command = '', ...args]: readonly string[]): Promise<() => HostFactory> {
  if (first === '--') {
    await stdioHost({ command, args }).check();
    return () => stdioHost({ command, args });
  }
  process.setSourceMapsEnabled(true);
  void parent.call('loading');
  // Before the module takes Node's functions.
  observeEffects((effect) => void parent.call('effect', effect));
  counts = new ModuleCounts(await loadFactory(first));
  const { factory } = counts;
  return () => factory;
}

function surroundingsOf(id: string): Surroundings {
  return {
    store: {
      get: (key) => parent.call('get', id, key),
      set: (key, value) => parent.call('set', id, key, value),
      delete: async (key) => (await parent.call('delete', id, key)) === true,
      insertIfAbsent: async (key, value) => (await parent.call('insertIfAbsent', id, key, value)) === true,
    },
    relay: {
      listen: async (name, hear) => {
        listeners.set(`${id} ${name}`, hear);
        await parent.call('listen', id, name);
        return async () => {
          listeners.delete(`${id} ${name}`);
          await parent.call('unlisten', id, name);
        };
      },
      send: async (name, message) => (await parent.call('send', id, name, message)) === true,
      close: async () => {},
    },
    log: (line) => void parent.call('log', id, line),
  };
}

process.on('disconnect', () => process.exit(0));
