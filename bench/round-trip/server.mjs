/** The process of one variant of the round trip. */
import { serve } from '../serving.mjs';

const VARIANTS = {
  'hand-written': () => import('./hand-written.mjs').then(({ listener }) => listener()),
  parked: () => import('./await.mjs').then(({ parked }) => parked()),
  'parked-shared': () => import('./await.mjs').then(({ parkedShared }) => parkedShared()),
  here: () => import('./await.mjs').then(({ here }) => here('redis')),
  'here-postgres': () => import('./await.mjs').then(({ here }) => here('postgres')),
  'here-sqlite': () => import('./await.mjs').then(({ here }) => here('sqlite')),
  'parked-process': () => import('./await.mjs').then(({ parkedProcess }) => parkedProcess()),
  elsewhere: () => import('./await.mjs').then(({ elsewhere }) => elsewhere()),
  replayed: () => import('./await.mjs').then(({ replayed }) => replayed()),
  'replayed-shared': () => import('./await.mjs').then(({ replayedShared }) => replayedShared()),
  floor: () => import('./floor.mjs').then(({ listener }) => listener()),
};

serve(await VARIANTS[process.argv[2]]());
