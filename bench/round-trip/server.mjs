/** The process of one variant. It tells its port, and its processor time when asked; it ends with its parent. */
import { createServer } from 'node:http';

const VARIANTS = {
  'hand-written': () => import('./hand-written.mjs').then(({ listener }) => listener()),
  parked: () => import('./await.mjs').then(({ parked }) => parked()),
  replayed: () => import('./await.mjs').then(({ replayed }) => replayed()),
  'replayed-shared': () => import('./await.mjs').then(({ replayedShared }) => replayedShared()),
  floor: () => import('./floor.mjs').then(({ listener }) => listener()),
};

const [name] = process.argv.slice(2);
const server = createServer(await VARIANTS[name]());
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('message', () => process.send(process.cpuUsage()));
process.on('disconnect', () => process.exit());
