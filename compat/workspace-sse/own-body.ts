/**
 * A POST's own body, for a client without an open GET. A response without earlier messages is the whole body, and is
 * not stored. Earlier messages make it a stream, read from the call's log, with ids for resuming.
 */
import type { JsonObject } from '../../src/base/values.ts';
import { type Begun, newCallId } from '../../src/call/engine.ts';
import { DisconnectSignal } from '../../src/doors/http/disconnect-signal.ts';
import type { GuardedWriter, Reply } from '../../src/doors/http/exchange.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { connect, finish, replyTo } from '../session/call-reply.ts';
import { Held } from '../session/held.ts';
import { loggedWay, messageOf } from '../session/start.ts';
import { sinkOf } from '../sink.ts';
import type { Calls, WorkspaceCaller } from './calls.ts';
import type { WorkspaceRequest } from './message.ts';
import { eventOf, eventText, FRAMING, HEADERS } from './wire.ts';

interface Connection {
  readonly writer: GuardedWriter;
  readonly sink: Sink;
}

export class OwnBody {
  readonly reply: Reply;
  readonly #calls: Calls;
  readonly #asker: WorkspaceCaller;
  /** Fires when the client goes away and has nothing to come back with. */
  readonly #gone = new DisconnectSignal();
  #onConnected: (connection: Connection | undefined) => void = () => {};
  /** Undefined if its client left before. */
  readonly #connection = new Promise<Connection | undefined>((resolve) => {
    this.#onConnected = resolve;
  });
  /** Whether its client has an id to come back with. */
  #hasId = false;

  constructor(calls: Calls, asker: WorkspaceCaller) {
    const { signal } = asker.inbound;
    this.#calls = calls;
    this.#asker = asker;
    this.reply = { status: 200, headers: HEADERS, body: (writer) => this.#connect(writer) };
    const onAbort = (): void => {
      if (!this.#hasId) this.#gone.fire();
      this.#onConnected(undefined);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  }

  /** Runs a request whose reply it is. */
  start(request: WorkspaceRequest): Begun {
    const exchange = this.#calls.exchange(this.#asker);
    const { services, session } = exchange;
    const callId = newCallId(services.now() + services.settings.ttl);
    const reply = replyTo(request, callId, this.#calls.dialect(this.#asker));
    const held = new Held(services, async () => {
      const connection = connect(exchange, reply);
      try {
        if (!(await started.keep())) return;
        held.release();
        const { sink } = (await this.#connection) ?? {};
        if (sink !== undefined) connection.attach(sink);
      } finally {
        connection.unattached();
      }
    });
    const direct = (message: JsonObject): void => services.replies.get(callId)?.pass(eventOf(message));
    const way = { ...loggedWay(direct, () => undefined), signal: this.#gone };
    const how = { callId, session: session.name, onDurable: () => held.keep() };
    const started: Begun = this.#calls.start(request, this.#asker, way, how);
    void started.outcome.then(async (outcome) => {
      await held.settled();
      if (held.isHeld) this.respond(messageOf(request, outcome));
      else finish(exchange, reply, outcome);
    });
    return started;
  }

  /** The whole of it. @param message undefined where there is nothing to say */
  respond(message: JsonObject | undefined): void {
    void this.#connection.then((connection) => {
      if (connection === undefined) return;
      if (message !== undefined) connection.writer.write(eventText(eventOf(message, true)));
      connection.sink.end('finished');
    });
  }

  #connect(writer: GuardedWriter): void {
    const { services } = this.#calls;
    services.counters.postStreams += 1;
    const sink = sinkOf(services, writer, { framing: FRAMING });
    const send: Sink['send'] = (event, id) => {
      this.#hasId ||= id !== undefined;
      return sink.send(event, id);
    };
    this.#onConnected({ writer, sink: { ...sink, send } });
  }
}
