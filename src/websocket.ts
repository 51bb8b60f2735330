/** `mcp-await/websocket`: WebSockets beside HTTP. */
export {
  createWebSocket,
  type MountedWebSocket,
  mountWebSocket,
  type WebSocketOptions,
} from './doors/websocket/mount.ts';
