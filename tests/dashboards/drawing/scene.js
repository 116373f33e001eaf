// A dashboard's JSON as a scene: variables, time range, rows and panels.
import { VariableHide, VariableRefresh } from '@grafana/data';
import {
  CustomVariable,
  DataSourceVariable,
  EmbeddedScene,
  QueryVariable,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariableSet,
  TextBoxVariable,
  VariableValueSelectors,
  VizPanel,
} from '@grafana/scenes';

import { bounded } from './panels.jsx';

const EVERYTHING = '$__all';

/** `chosen` has values by name of variable; without `from` and `to`, the dashboard's own range applies. */
export function sceneOf(board, { from, to, chosen = {}, unfolded = false }) {
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from, to, timeZone: 'utc' }),
    $variables: new SceneVariableSet({ variables: board.templating.list.map((each) => variableOf(each, chosen[each.name])) }),
    controls: [new VariableValueSelectors({}), new SceneTimePicker({ isOnCanvas: true })],
    body: new SceneGridLayout({ children: childrenOf(board.panels, unfolded), isLazy: false }),
  });
}

function variableOf(json, chosen) {
  const { name, label, hide = VariableHide.dontHide } = json;
  if (json.type === 'datasource') {
    return new DataSourceVariable({ name, label, hide, pluginId: json.query });
  }
  if (json.type === 'textbox') {
    return new TextBoxVariable({ name, label, hide, value: chosen ?? json.query });
  }
  if (json.type === 'custom') {
    return new CustomVariable({ name, label, hide, query: json.query, value: chosen ?? json.current.value });
  }
  const all = json.includeAll ? EVERYTHING : undefined;
  const value = chosen === undefined ? (json.multi && all ? [all] : all ?? '') : json.multi ? [chosen].flat() : chosen;
  return new QueryVariable({
    name,
    label,
    hide,
    query: json.query,
    datasource: json.datasource,
    regex: json.regex,
    sort: json.sort,
    refresh: json.refresh ?? VariableRefresh.onTimeRangeChanged,
    isMulti: json.multi,
    includeAll: json.includeAll,
    allValue: json.allValue,
    defaultToAll: Boolean(json.includeAll),
    value,
    text: value,
  });
}

function childrenOf(panels, unfolded) {
  const children = [];
  let row;
  for (const panel of panels) {
    if (panel.type === 'row') {
      const { y } = panel.gridPos;
      const isCollapsed = Boolean(panel.collapsed) && !unfolded;
      const own = new SceneGridRow({ key: `row-${panel.id}`, title: panel.title, isCollapsible: true, isCollapsed, y, children: (panel.panels ?? []).map(itemOf) });
      children.push(own);
      row = panel.collapsed ? undefined : own; // a collapsed row has its panels inside
    } else if (row) {
      row.setState({ children: [...row.state.children, itemOf(panel)] });
    } else {
      children.push(itemOf(panel));
    }
  }
  return unfolded ? pushedDown(children) : children;
}

/** Rows below unfolded ones, moved down by what these hold. */
function pushedDown(children) {
  let bottom = 0;
  for (const child of children) {
    if (child instanceof SceneGridRow) {
      const down = bottom - child.state.y;
      child.setState({ y: bottom });
      child.state.children.forEach((item) => item.setState({ y: item.state.y + down }));
      bottom += 1;
    }
    const items = child instanceof SceneGridRow ? child.state.children : [child];
    bottom = Math.max(bottom, ...items.map(({ state }) => state.y + state.height));
  }
  return children;
}

function itemOf(panel) {
  const { x, y, w, h } = panel.gridPos;
  return new SceneGridItem({ x, y, width: w, height: h, body: panelOf(panel) });
}

function panelOf(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const queries = panel.targets.map(({ datasource, ...query }) => query);
  const data = new SceneQueryRunner({ datasource: panel.datasource, queries, minInterval: panel.interval });
  return new VizPanel({
    key: `panel-${panel.id}`,
    title: panel.title,
    description: panel.description,
    pluginId: panel.type,
    options: panel.options ?? {},
    fieldConfig: { defaults: { ...defaults, thresholds: bounded(defaults.thresholds) }, overrides },
    $data: new SceneDataTransformer({ $data: data, transformations: panel.transformations ?? [] }),
  });
}
