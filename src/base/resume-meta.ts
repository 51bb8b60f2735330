/**
 * The names by which a client and a server of this package resume a session on another socket (`docs/websocket.md`): a
 * notification, and entries of `_meta`.
 */

/** First message of a socket that resumes another one's session. */
export const RESUME = 'notifications/mcp-await/resume';
/** In `initialize`: true. In its result and in `RESUME`: the sealed id of the session. */
export const SESSION_META = 'mcp-await/session';
/** The revision that the session speaks, in `RESUME`. */
export const VERSION_META = 'mcp-await/version';
/** Of a message: its event's id. Of a request that is sent again, and of `RESUME`: the last that its client had. */
export const EVENT_META = 'mcp-await/event';
/** Of a message in the course of a request: that request's id. */
export const REQUEST_META = 'mcp-await/request';
