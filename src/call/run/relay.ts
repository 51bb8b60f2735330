/** How processes reach one another: messages by name, to at most one process each. */
export interface Relay {
  /**
   * Hears what is sent to `name` from the moment this resolves.
   * @returns how to stop
   */
  listen(name: string, hear: (message: string) => void): Promise<() => Promise<void>>;
  /**
   * May lose, delay, reorder or repeat.
   * @returns false only when it is sure that nobody listens
   */
  send(name: string, message: string): Promise<boolean>;
  close(): Promise<void>;
}
