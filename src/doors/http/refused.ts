/** Credentials that are refused with a reply of their own. */
import { AwaitError } from '../../base/values.ts';
import type { Reply } from './exchange.ts';

/** Thrown by `authenticate`, where the client is to see the reply. */
export class CredentialsRefused extends AwaitError {
  readonly reply: Reply;

  constructor(reply: Reply) {
    super('bad-token', 'the credentials of a request are not accepted');
    this.reply = reply;
  }
}
