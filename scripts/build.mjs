// Compiles src/ and compat/ to dist/ with tsc, marks the command line as executable, and adds the other files: the page
// of `mcp-await compare`, one file with its script and style in it, and the schema of its scenarios. Does nothing if
// dist was built from the same sources.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, transform } from 'esbuild';
import { scenarioJsonSchema } from './scenario-schema.mjs';

const STAMP = join('dist', '.sources');

/** A digest of all that the output depends on. */
function sourcesDigest() {
  const digest = createHash('sha256');
  const files = ['src', 'compat'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name)),
  );
  const settings = ['tsconfig.json', 'tsconfig.build.json', 'package-lock.json', 'scripts/build.mjs'];
  for (const file of [...files.sort(), ...settings]) digest.update(`${file}\0`).update(readFileSync(file));
  return digest.digest('hex');
}

const sources = sourcesDigest();
if (existsSync(STAMP) && readFileSync(STAMP, 'utf8') === sources) process.exit(0);
// Built beside dist and then moved, so that processes that use dist miss it for a moment only.
const fresh = `dist.${process.pid}`;
// Editors show the comments of declarations; those of the code would be a third of what is installed.
for (const emitted of [['--emitDeclarationOnly'], ['--declaration', 'false', '--removeComments']]) {
  const args = [
    'node_modules/typescript/bin/tsc',
    '-p',
    'tsconfig.build.json',
    '--outDir',
    fresh,
    ...emitted,
  ];
  const { status } = spawnSync(process.execPath, args, { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
await reprint(fresh);
chmodSync(`${fresh}/src/cli/main.js`, 0o755);
await bundlePage(`${fresh}/src/compare/page.html`);
const schema = await import(pathToFileURL(`${fresh}/src/compare/scenario-schema.js`).href);
writeFileSync(`${fresh}/scenario.schema.json`, `${JSON.stringify(scenarioJsonSchema(schema), null, 2)}\n`);
writeFileSync(join(fresh, '.sources'), sources);
rmSync('dist', { recursive: true, force: true });
renameSync(fresh, 'dist');

/**
 * Prints the code with the indentation of its sources, which tsc doubles; nothing else changes. It has no source maps:
 * the sources are not in the package, and lines are close to theirs.
 */
async function reprint(folder) {
  const names = readdirSync(folder, { recursive: true }).map(String);
  const scripts = names.filter((name) => name.endsWith('.js')).map((name) => join(folder, name));
  await Promise.all(
    scripts.map(async (path) => {
      const { code } = await transform(readFileSync(path, 'utf8'), {
        target: 'es2023',
        charset: 'utf8',
      });
      // Marks for bundlers, which the sources do not have.
      writeFileSync(path, code.replaceAll('/* @__PURE__ */ ', ''));
    }),
  );
}

async function bundlePage(path) {
  const source = 'src/compare/page';
  const { outputFiles } = await build({
    entryPoints: [`${source}/main.tsx`, `${source}/page.css`],
    bundle: true,
    minify: true,
    write: false,
    outdir: 'page',
    format: 'iife',
    target: ['es2022'],
    legalComments: 'inline',
  });
  const textOf = (ending) => outputFiles.find((file) => file.path.endsWith(ending))?.text ?? '';
  const page = readFileSync(`${source}/page.html`, 'utf8')
    .replace('/*style*/', () => textOf('.css'))
    .replace('/*script*/', () => textOf('.js'));
  writeFileSync(path, page);
}
