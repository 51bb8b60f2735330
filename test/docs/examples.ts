/** The `@example` of each public export, as an editor shows it. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type TypeScript from 'typescript-5.9';
import { ROOT } from './pages.ts';

/** TypeScript 7 has no compiler interface for JavaScript. */
const ts = createRequire(import.meta.url)('typescript-5.9') as typeof TypeScript;

export interface PublicExport {
  /** As in `mcp-await/node: toNodeHandler`. */
  readonly name: string;
  readonly isValue: boolean;
  readonly documentation: string;
  readonly examples: readonly string[];
}

/** Every name that the package exports, with its docstring. @param home the package's folder, with `dist` */
export function publicExports(home: string): PublicExport[] {
  const { exports } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as {
    exports: Record<string, string | { types: string }>;
  };
  const entries = Object.entries(exports).flatMap(([path, to]) =>
    typeof to === 'string' ? [] : [{ module: join('mcp-await', path), file: join(home, to.types) }],
  );
  const program = ts.createProgram(
    entries.map(({ file }) => file),
    { module: ts.ModuleKind.NodeNext, skipLibCheck: true, types: [] },
  );
  const checker = program.getTypeChecker();
  return entries.flatMap(({ module, file }) => {
    const source = program.getSourceFile(file);
    const symbol = source && checker.getSymbolAtLocation(source);
    if (symbol === undefined) return [];
    return checker.getExportsOfModule(symbol).map((exported) => {
      const own = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      return {
        name: `${module}: ${exported.name}`,
        isValue: (own.flags & ts.SymbolFlags.Value) !== 0,
        documentation: ts.displayPartsToString(own.getDocumentationComment(checker)),
        examples: own
          .getJsDocTags(checker)
          .filter(({ name }) => name === 'example')
          .map(({ text }) => ts.displayPartsToString(text)),
      };
    });
  });
}
