/** V8's structured stacks, to distinguish places in the user's code. */

/**
 * @param below the frames are those below this function's
 * @param depth how many, at most
 */
export function stackBelow(below: (...args: never[]) => unknown, depth: number): readonly NodeJS.CallSite[] {
  const { prepareStackTrace, stackTraceLimit } = Error;
  let frames: readonly NodeJS.CallSite[] = [];
  try {
    Error.stackTraceLimit = depth;
    Error.prepareStackTrace = (_error, sites) => {
      frames = sites;
      return '';
    };
    const holder: { stack?: string } = {};
    Error.captureStackTrace(holder, below);
    // V8 formats a stack when it is first read.
    void holder.stack;
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
    Error.stackTraceLimit = stackTraceLimit;
  }
  return frames;
}

/** Empty for built-ins, such as `Array.map`. */
export function fileOf(frame: NodeJS.CallSite): string {
  return frame.getFileName() ?? '';
}

/** `server.ts:41:20`: the file's name alone, since folders differ between machines. */
export function placeIn(frame: NodeJS.CallSite): string {
  const file = fileOf(frame).split(/[?#]/, 1).join();
  return `${file.replace(/^.*[\\/]/, '')}:${frame.getLineNumber()}:${frame.getColumnNumber()}`;
}

/** Where this package's own code is, which is nobody's place. */
const ROOT = new URL('..', import.meta.url).pathname.replace(/(?:dist\/)?src\/$/, '');
const OWN = ['src/', 'compat/', 'dist/'].map((folder) => ROOT + folder);
/** What loads modules, whose own reads and writes are no tool's; and what `fs.cp` does once it was called. */
const LOADERS =
  /^node:internal\/(modules|bootstrap|fs\/cp)\/|\/node_modules\/(tsx|esbuild|vite|vitest|vite-node)\//;

/**
 * The author's line that leads to a function: `server.ts:41`. Source maps apply where the process has them, since this
 * reads the stack as text (vitest maps it, and Node does with `process.setSourceMapsEnabled(true)`, which tsx calls).
 *
 * @param below the frames are those below this function's
 * @returns a line of a package, `pg/lib/client.js:12`, if no frame is the author's; `undefined` if every frame is
 *   Node's own, or a module is being loaded
 */
export function authorPlace(below: (...args: never[]) => unknown): string | undefined {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 50;
  const holder: { stack?: string } = {};
  Error.captureStackTrace(holder, below);
  // V8 formats a stack when it is first read.
  const lines = String(holder.stack).split('\n');
  Error.stackTraceLimit = stackTraceLimit;
  let ofPackage: string | undefined;
  for (const line of lines) {
    const [, url = '', row] = /(?:\(|at (?:async )?)([^()]+?):(\d+):\d+\)?$/.exec(line) ?? [];
    if (LOADERS.test(url)) return undefined;
    const path = pathIn(url);
    if (!isForeign(url)) return `${path.replace(/^.*[\\/]/, '')}:${row}`;
    const inPackage = packagePlace(path);
    if (inPackage !== undefined && !isOwn(path)) ofPackage ??= `${inPackage}:${row}`;
  }
  return ofPackage;
}

/** Whether a file is not its author's: Node's, a package's, or this one's. */
export function isForeign(url: string): boolean {
  const path = pathIn(url);
  return /^(node:.*|<anonymous>|)$/.test(path) || isOwn(path) || packagePlace(path) !== undefined;
}

/** The path of a file, for a URL or a path that a stack names. */
export function pathIn(url: string): string {
  const path = url.startsWith('file://') ? url.slice('file://'.length) : url;
  return path.split(/[?#]/, 1).join();
}

function isOwn(path: string): boolean {
  return OWN.some((folder) => path.startsWith(folder));
}

/** Where a file is in the innermost of its packages; undefined if it is in none. */
function packagePlace(path: string): string | undefined {
  const parts = path.split(/[\\/]/);
  const at = parts.lastIndexOf('node_modules') + 1;
  return at > 0 && at < parts.length ? parts.slice(at).join('/') : undefined;
}

/** Whether it is Node's own code, or V8's. */
export function isBuiltIn(frame: NodeJS.CallSite): boolean {
  const file = fileOf(frame);
  return file === '' || file.startsWith('node:');
}
