/** The package as users install it: packed, and put into an empty project beside its and their dependencies. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ROOT } from './pages.ts';

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
}

/** Packs the package. @returns the tarball's name, in `folder` */
export function packInto(folder: string): string {
  const packed = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], {
    cwd: ROOT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [{ filename }] = JSON.parse(packed) as [{ filename: string }];
  return filename;
}

/** An empty project. @returns its folder */
export function emptyProject(type: 'module' | 'commonjs'): string {
  const project = mkdtempSync(join(tmpdir(), 'mcp-await-user-'));
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'user', private: true, type }));
  return project;
}

/**
 * Installs without a registry: dependencies are links to this project's.
 *
 * @param users packages that the user installs beside it
 * @returns the project's folder
 */
export function installInto(type: 'module' | 'commonjs', users: readonly string[]): string {
  const project = emptyProject(type);
  const modules = join(project, 'node_modules');
  mkdirSync(modules);
  execFileSync('tar', ['-xzf', packInto(project)], { cwd: project });
  execFileSync('mv', [join(project, 'package'), join(modules, 'mcp-await')]);
  const { dependencies } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as Manifest;
  for (const name of new Set([...Object.keys(dependencies), ...users])) {
    const link = join(modules, name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(`${ROOT}node_modules/${name}`, link);
  }
  return project;
}
