// node serve.mjs MODULES OUT DASHBOARDS PROMETHEUS: bundles the page into OUT, with one copy of each of Grafana's
// libraries, which npm has put into MODULES, and serves it and the dashboards, with the Prometheus at that address below
// /api/. Prints its own address, and ends with its input.
import { createReadStream, existsSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, outdir, dashboards] = process.argv.slice(2, 5).map((each) => path.resolve(each));
const [host, port] = process.argv[5].split(':');
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

const TYPES = { '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };
// Grafana's style sheet loads its font under other names than the npm package has.
const FONTS = { 'Inter-Regular.woff2': 'inter-latin-400-normal.woff2', 'Inter-Medium.woff2': 'inter-latin-500-normal.woff2' };
const NO_ICON = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"></svg>';

function fileOf(url) {
  const [, first, ...rest] = decodeURIComponent(url.split('?')[0]).split('/');
  const font = FONTS[rest.at(-1)];
  if (font) {
    return path.join(modules, '@fontsource/inter/files', font);
  }
  if (first === 'dashboards') {
    return path.join(dashboards, ...rest);
  }
  if (first === 'public') {
    return path.join(modules, '@grafana/ui/dist/public', ...rest);
  }
  return first ? path.join(outdir, first) : path.join(import.meta.dirname, 'index.html');
}

const server = http.createServer((request, response) => {
  const { method, headers, url } = request;
  if (url.startsWith('/api/')) {
    const asked = http.request({ host, port, path: url, method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(asked);
    return;
  }
  const file = fileOf(url);
  const type = TYPES[path.extname(file)];
  if (existsSync(file)) {
    response.writeHead(200, { 'Content-Type': type });
    createReadStream(file).pipe(response);
  } else if (file.endsWith('.svg')) {
    response.writeHead(200, { 'Content-Type': type }).end(NO_ICON); // the application has more icons than the library
  } else {
    response.writeHead(404).end();
  }
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`));
process.stdin.resume().on('end', () => process.exit());
