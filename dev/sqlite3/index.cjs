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
    let rows;
    try {
      rows = this.#run(sql, rest.flat());
    } catch (error) {
      queueMicrotask(() => callback(error));
      return;
    }
    queueMicrotask(() => callback(null, rows));
  }

  // A prepared statement that libsql could not get a lock for stays active, with no way to reset it, and as
  // long as it does nothing that is written later over this connection is committed, although it is
  // acknowledged. So the lock is taken first by `exec`, which leaves nothing behind.
  #run(sql, values) {
    if (/^\s*(BEGIN|COMMIT|ROLLBACK)/i.test(sql)) {
      this.#db.exec(sql);
      return [];
    }
    if (/^\s*PRAGMA/i.test(sql)) return this.#execute(sql, values);
    const reads = /^\s*SELECT/i.test(sql);
    this.#db.exec(reads ? 'BEGIN' : 'BEGIN IMMEDIATE');
    try {
      if (reads) this.#db.exec('SELECT 1 FROM sqlite_schema LIMIT 1');
      const rows = this.#execute(sql, values);
      this.#db.exec('COMMIT');
      return rows;
    } catch (error) {
      if (this.#db.inTransaction) this.#db.exec('ROLLBACK');
      throw error;
    }
  }

  #execute(sql, values) {
    const statement = this.#db.prepare(sql);
    if (statement.reader) return statement.all(...values);
    statement.run(...values);
    return [];
  }

  close(callback) {
    this.#db.close();
    queueMicrotask(() => callback?.(null));
  }
}

module.exports = { Database };
