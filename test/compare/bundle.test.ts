/** What tests and comparisons need is in nothing that a server imports. */
import { build } from 'esbuild';
import { expect, it } from 'vitest';

const FACES = ['src/index.ts', 'src/node.ts', 'src/client/index.ts', 'src/record/index.ts'];

it('no face of the package but testing and the command line reaches the side-by-side runner, or its peers', async () => {
  const { metafile } = await build({
    entryPoints: FACES,
    bundle: true,
    write: false,
    outdir: 'bundle',
    platform: 'node',
    format: 'esm',
    packages: 'external',
    metafile: true,
  });
  const inputs = Object.keys(metafile.inputs);
  expect(inputs.length).toBeGreaterThan(50);
  expect(inputs.filter((path) => /src\/compare/.test(path))).toEqual([]);
  const imported = inputs.flatMap((path) => metafile.inputs[path]?.imports ?? []).map(({ path }) => path);
  expect(
    imported.filter((name) => /^(preact|yaml|vitest|zod|@modelcontextprotocol\/client)/.test(name)),
  ).toEqual([]);
});
