/** Credentials that are refused with a reply of their own. */
import { AwaitError } from '../../base/values.ts';
import type { Reply } from './exchange.ts';

/** Nothing can be said of a request for now. */
export const LATER: Reply = { status: 503, headers: { 'retry-after': '5' } };

/** Thrown by `authenticate`, where the client is to see the reply. */
export class CredentialsRefused extends AwaitError {
  readonly reply: Reply;

  constructor(reply: Reply) {
    super('bad-token', 'the credentials of a request are not accepted');
    this.reply = reply;
  }
}

/** The refusal of a request whose `authenticate` failed. Where its credentials could not be verified, nothing is known of them: 503. */
export function refusalOf(error: unknown): Reply {
  if (error instanceof CredentialsRefused) return error.reply;
  return error instanceof AwaitError && error.code !== 'bad-token'
    ? LATER
    : { status: 401, headers: { 'www-authenticate': 'Bearer error="invalid_token"' } };
}
