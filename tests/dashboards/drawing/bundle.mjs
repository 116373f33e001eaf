// node bundle.mjs MODULES OUT: bundles the page, with one copy of each of Grafana's libraries.
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, outdir] = process.argv.slice(2).map((each) => path.resolve(each));
const { build } = await import(pathToFileURL(createRequire(path.join(modules, 'x')).resolve('esbuild')));
const LIBRARIES = /^@grafana\/(data|e2e-selectors|runtime|schema|ui)$/;
const SCHEMAS = /^@grafana\/schema\/dist\/esm\/.*\.gen$/;

// In .mjs files, esbuild follows Node.js and takes what CommonJS libraries export for a module, not a component.
const grafana = {
  name: 'grafana',
  setup(bundle) {
    bundle.onResolve({ filter: LIBRARIES }, ({ path: name }) => ({ path: path.join(modules, name, 'dist/cjs/index.cjs') }));
    bundle.onResolve({ filter: SCHEMAS }, ({ path: name }) => ({ path: path.join(modules, `${name}.js`) }));
  },
};

await build({
  entryPoints: [path.join(import.meta.dirname, 'page.jsx')],
  outdir,
  bundle: true,
  minify: true,
  jsx: 'automatic',
  logLevel: 'error',
  nodePaths: [modules],
  loader: { '.svg': 'dataurl', '.ttf': 'empty' },
  define: { 'process.env.NODE_ENV': '"production"' },
  plugins: [grafana],
});
