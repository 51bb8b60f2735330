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

/** Whether it is Node's own code, or V8's. */
export function isBuiltIn(frame: NodeJS.CallSite): boolean {
  const file = fileOf(frame);
  return file === '' || file.startsWith('node:');
}
