/** The exports of `mcp-await/store`. */
export { openStore } from './checkpoint/open-store.ts';
