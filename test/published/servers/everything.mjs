// As its own README mounts it.
export { createServer as default } from '@modelcontextprotocol/server-everything/dist/server/index.js';
