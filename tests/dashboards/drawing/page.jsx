// A dashboard in @grafana/scenes. `window.draw(settings)` shows the JSON under /dashboards; `window.settled()` is a
// promise of the end of all queries; `window.failures()` has what Prometheus refused, and what readers cannot rely on.
import { PluginType, ThemeContext, createTheme, standardTransformers, standardTransformersRegistry, EventBusSrv } from '@grafana/data';
import {
  config,
  setAppEvents,
  setDataSourceSrv,
  setPluginImportUtils,
  setRunRequest,
} from '@grafana/runtime';
import { VizPanel, sceneGraph, sceneUtils } from '@grafana/scenes';
import { GlobalStyles } from '@grafana/ui';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';

import { Prometheus, UID, runRequest } from './datasource.js';
import { plugins } from './panels.jsx';
import { cut, misled, mistold } from './faults.js';
import { sceneOf } from './scene.js';

const prometheus = new Prometheus();
let scene;
let theme;

function prepare() {
  config.bootData = { ...config.bootData, user: { timezone: 'utc' } };
  // Some are exported under two names.
  standardTransformersRegistry.setInit(() =>
    [...new Set(Object.values(standardTransformers))].map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      transformation,
      editor: () => null,
    }))
  );
  setAppEvents(new EventBusSrv());
  setRunRequest(runRequest);
  const settings = { uid: UID, name: 'Prometheus', type: 'prometheus', meta: { id: 'prometheus', type: PluginType.datasource } };
  setDataSourceSrv({ get: async () => prometheus, getList: () => [settings], getInstanceSettings: () => settings });
  setPluginImportUtils({
    getPanelPluginFromCache: () => undefined,
    importPanelPlugin: (id) => Promise.reject(new Error(`unknown panel type: ${id}`)),
  });
  for (const [pluginId, plugin] of plugins()) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
}

function panels() {
  return sceneGraph.findAllObjects(scene, (each) => each instanceof VizPanel && each.isActive);
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Waits until no panel on the screen loads any more, and charts have drawn. */
window.settled = async () => {
  let quiet = 0;
  while (quiet < 4) {
    await sleep(150);
    const states = panels().map((panel) => sceneGraph.getData(panel).state.data?.state);
    const busy = sceneGraph.hasVariableDependencyInLoadingState(scene) || states.some((state) => !state || state === 'Loading');
    quiet = busy || !states.length ? 0 : quiet + 1;
  }
  await sleep(400);
};

window.failures = () => [
  ...prometheus.failures,
  ...panels()
    .filter((panel) => panel.state._pluginLoadError || sceneGraph.getData(panel).state.data?.state === 'Error')
    .map((panel) => `${panel.state.title}: ${panel.state._pluginLoadError ?? 'its query failed'}`),
  ...panels().flatMap((panel) => [...mistold(panel), ...misled(panel)]),
  ...cut(),
];

window.draw = async ({ file, note, since, until, dark, ...settings }) => {
  theme = createTheme({ colors: { mode: dark ? 'dark' : 'light' } });
  config.theme2 = theme;
  const board = await (await fetch(`/dashboards/${file}`)).json();
  const [from, to] = [since, until].map((seconds) => new Date(1000 * seconds));
  Date.now = () => to.getTime(); // "20 minutes ago" is relative to the moment shown
  scene = sceneOf(board, { ...settings, from: from.toISOString(), to: to.toISOString() });
  const root = createRoot(document.getElementById('root'));
  const inTheme = (content) => (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <MemoryRouter future={{ v7_startTransition: true, v7_relativeSplatPath: true }}>{content}</MemoryRouter>
    </ThemeContext.Provider>
  );
  flushSync(() => root.render(inTheme(null)));
  // Charts measure and draw texts once: the fonts, which the style sheet names, must be there before.
  await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
  root.render(
    inTheme(
      <>
        <div style={{ padding: '8px 16px 0', color: theme.colors.text.secondary, fontSize: 12 }}>{note}</div>
        <div style={{ padding: 16, display: 'flex', flexDirection: 'column', minHeight: '100vh' }}>
          <scene.Component model={scene} />
        </div>
      </>
    )
  );
};

prepare();
window.ready = true;
