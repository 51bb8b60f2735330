/**
 * Ends the children of a process that was killed by a signal it cannot catch (SIGKILL, an out-of-memory kill). A shell
 * in a session of its own reads this process's pipe: it is sent the ids of the process groups, and kills those that are
 * left when the pipe closes. Most children end by themselves when their input closes; the shell is for those that do
 * not. Not on Windows, which has no such shell.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import process from 'node:process';

/** Seconds that a child has to end by itself once its input is closed. */
const GRACE = 2;
const SCRIPT = `
pids=" "
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid " ;;
    -) case $pids in *" $pid "*) pids="\${pids%% $pid *} \${pids#* $pid }" ;; esac ;;
  esac
done
[ "$pids" = " " ] && exit 0
sleep ${GRACE}
for pid in $pids; do kill -KILL "-$pid" 2>/dev/null; done
`;

let shell: ChildProcess | undefined;

/** Has a process group ended with this process, however that ends. */
export function watch(pid: number): void {
  if (process.platform === 'win32') return;
  shell ??= start();
  shell.stdin?.write(`+ ${pid}\n`);
}

/** The group has ended: its number may be given to another one. */
export function unwatch(pid: number): void {
  shell?.stdin?.write(`- ${pid}\n`);
}

function start(): ChildProcess {
  const child = spawn('/bin/sh', ['-c', SCRIPT], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  const forget = (): void => {
    if (shell === child) shell = undefined;
  };
  child.once('error', forget);
  child.once('exit', forget);
  child.stdin?.on('error', forget);
  child.unref();
  // The type is a Writable, which has no unref; a pipe's socket has one.
  (child.stdin as { unref?(): void } | null)?.unref?.();
  return child;
}
