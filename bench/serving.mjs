/** The process of one variant. It sends its port, and its processor time on request; it ends with its parent. */
import { createServer } from 'node:http';

export function serve(listener) {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
  process.on('message', () => process.send(process.cpuUsage()));
  process.on('disconnect', () => process.exit());
}
