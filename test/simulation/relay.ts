/** A relay that loses, delays, repeats and reorders. */
import type { Relay } from '../../src/call/ports.ts';
import type { Life, World } from './world.ts';

export interface Weather {
  /** Probabilities. */
  readonly loss: number;
  readonly twice: number;
  /** In milliseconds. */
  readonly delay: number;
}

export class SimulatedRelay {
  readonly #world: World;
  readonly #weather: Weather;
  readonly #listeners = new Map<string, { life: Life; hear: (message: string) => void }>();

  constructor(world: World, weather: Weather) {
    this.#world = world;
    this.#weather = weather;
  }

  /** The relay, as one process sees it. */
  for(life: Life): Relay {
    const world = this.#world;
    const { loss, twice, delay } = this.#weather;
    return {
      listen: async (name, hear) => {
        this.#listeners.set(name, { life, hear });
        return async () => void this.#listeners.delete(name);
      },
      send: (name, message) =>
        new Promise((resolve) => {
          const copies = world.chance(loss) ? 0 : world.chance(twice) ? 2 : 1;
          for (let copy = 0; copy < copies; copy += 1) {
            world.after(world.between(0.1, delay), () => {
              const listener = this.#listeners.get(name);
              if (listener !== undefined) world.after(0, () => listener.hear(message), listener.life);
            });
          }
          world.after(
            world.between(0.1, delay),
            () => {
              const listener = this.#listeners.get(name);
              resolve(listener !== undefined && !listener.life.dead);
            },
            life,
          );
        }),
      close: async () => {},
    };
  }
}
