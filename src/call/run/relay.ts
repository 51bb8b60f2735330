/** How processes reach one another: messages by name. Most names are one process's; one is all processes'. */
export interface Relay {
  /**
   * Receives messages to `name` from the moment this resolves; where several listen to a name, each receives them.
   * @returns a function that stops it
   */
  listen(name: string, hear: (message: string) => void): Promise<() => Promise<void>>;
  /**
   * May lose, delay, reorder or repeat.
   * @returns false only if it is certain that no process listens
   */
  send(name: string, message: string): Promise<boolean>;
  close(): Promise<void>;
}
