// It is published as a command on stdio: each import makes one server, which is caught as it connects.
import { tmpdir } from 'node:os';
import process from 'node:process';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

const connect = McpServer.prototype.connect;
let taken;
McpServer.prototype.connect = function (transport) {
  if (!(transport instanceof StdioServerTransport)) return connect.call(this, transport);
  taken?.(this);
  return Promise.resolve();
};
process.argv = [process.argv[0], 'mcp-server-filesystem', tmpdir()];
let count = 0;
export default () =>
  new Promise((resolve, reject) => {
    count += 1;
    taken = resolve;
    import(`@modelcontextprotocol/server-filesystem/dist/index.js?instance=${count}`).catch(reject);
  });
