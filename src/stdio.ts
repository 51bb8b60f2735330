/** `mcp-await/stdio`: one client on stdin and stdout. */
export { createStdio, type StdioOptions, type StdioServer } from './doors/pipe/stdio.ts';
