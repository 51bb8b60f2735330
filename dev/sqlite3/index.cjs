// @keyv/sqlite runs on the package `sqlite3`, which is compiled when it is installed where its prebuilt
// binary cannot be fetched. A checkout of this project must install with Node alone, so here (and only
// here: see "overrides" in package.json) that package is this file: the same calls over `libsql`, a SQLite
// whose binaries come from the registry. Users of this package get the real `sqlite3` with @keyv/sqlite.
const Sqlite = require('libsql');

class Database {
  #db;

  constructor(path, callback) {
    try {
      this.#db = new Sqlite(path, { timeout: 5000 });
      this.#db.exec('PRAGMA busy_timeout = 5000');
    } catch (error) {
      queueMicrotask(() => callback?.(error));
      return;
    }
    queueMicrotask(() => callback?.(null));
  }

  configure(name, value) {
    if (name === 'busyTimeout') this.#db.exec(`PRAGMA busy_timeout = ${Number(value)}`);
  }

  all(sql, ...rest) {
    const callback = rest.pop();
    const values = rest.flat();
    let rows;
    try {
      const statement = this.#db.prepare(sql);
      if (statement.reader) {
        rows = statement.all(...values);
      } else {
        statement.run(...values);
        rows = [];
      }
    } catch (error) {
      queueMicrotask(() => callback(error));
      return;
    }
    queueMicrotask(() => callback(null, rows));
  }

  close(callback) {
    this.#db.close();
    queueMicrotask(() => callback?.(null));
  }
}

module.exports = { Database };
