// A data source for @grafana/scenes that asks the Prometheus behind the page's own server.
import { LoadingState } from '@grafana/data';
import { RuntimeDataSource, sceneGraph } from '@grafana/scenes';
import { from, map, startWith } from 'rxjs';

import { framesOf } from './frames.js';

export const UID = 'prometheus';
const SCRAPE_INTERVAL = 60;
const RATE_INTERVALS = 4;

export class Prometheus extends RuntimeDataSource {
  constructor() {
    super('prometheus', UID);
    this.failures = [];
  }

  async query(request) {
    const { targets, range, scopedVars } = request;
    const scene = scopedVars.__sceneObject.value.valueOf();
    const step = Math.max(SCRAPE_INTERVAL, Math.ceil(request.intervalMs / 1000 / SCRAPE_INTERVAL) * SCRAPE_INTERVAL);
    const frames = await Promise.all(
      targets.map(async (target) => {
        const expr = this.interpolated(scene, target.expr, range, step, scopedVars);
        const end = range.to.unix();
        const series = target.instant
          ? await this.ask('query', { query: expr, time: end })
          : await this.ask('query_range', { query: expr, start: range.from.unix(), end, step });
        const legendFormat = sceneGraph.interpolate(scene, target.legendFormat ?? '', scopedVars);
        return framesOf({ ...target, legendFormat }, series, step, targets.length);
      })
    );
    return { data: frames.flat(), state: LoadingState.Done };
  }

  /** Choices of a variable: `label_values(…)` and `query_result(…)` as the Prometheus data source knows them. */
  async metricFindQuery({ query }, { range, scopedVars }) {
    const scene = scopedVars.__sceneObject.value.valueOf();
    const text = this.interpolated(scene, query, range, SCRAPE_INTERVAL, scopedVars);
    const result = text.match(/^query_result\((.*)\)$/s);
    if (result) {
      const series = await this.ask('query', { query: result[1], time: range.to.unix() });
      return series.map(({ labels, values }) => {
        const pairs = Object.entries(labels).map(([name, value]) => `${name}="${value}"`);
        return { text: `{${pairs.join(',')}} ${values[0][1]} ${values[0][0] * 1000}` };
      });
    }
    const [, selector, label] = text.match(/^label_values\((.*), (\w+)\)$/s);
    const parameters = { 'match[]': selector, start: range.from.unix(), end: range.to.unix() };
    return (await this.fetched(`label/${label}/values`, parameters, 'GET')).map((value) => ({ text: value }));
  }

  interpolated(scene, text, range, step, scopedVars) {
    const seconds = range.to.unix() - range.from.unix();
    const own = text
      .replaceAll('$__range', `${seconds}s`)
      .replaceAll('$__rate_interval', `${Math.max(RATE_INTERVALS * SCRAPE_INTERVAL, step + SCRAPE_INTERVAL)}s`)
      .replaceAll('$__interval', `${step}s`);
    return sceneGraph.interpolate(scene, own, scopedVars, ofVariable);
  }

  async ask(path, parameters) {
    const found = await this.fetched(path, parameters, 'POST');
    if (found.resultType === 'scalar') {
      return [{ labels: {}, values: [[found.result[0], Number(found.result[1])]] }];
    }
    return found.result.map(({ metric, value, values }) => ({
      labels: metric,
      values: (values ?? [value]).map(([at, sample]) => [at, Number(sample)]),
    }));
  }

  async fetched(path, parameters, method) {
    const body = new URLSearchParams(parameters);
    const answer =
      method === 'GET' ? await fetch(`/api/v1/${path}?${body}`) : await fetch(`/api/v1/${path}`, { method, body });
    const { data, error } = await answer.json();
    if (error) {
      this.failures.push(`${error}: ${parameters.query}`);
      throw new Error(error);
    }
    return data;
  }
}

/** How the Prometheus data source writes the value of a variable into a query. */
function ofVariable(value, variable) {
  if (!variable.multi && !variable.includeAll) {
    return String(value).replace(/\\/g, '\\\\').replace(/"/g, '\\"');
  }
  const all = [value].flat().map((each) => String(each).replace(/[$^*{}[\]'+?.()|\\]/g, '\\\\$&'));
  return all.length === 1 ? all[0] : `(${all.join('|')})`;
}

/** What @grafana/runtime calls to run a request, in Grafana with caching, streaming and cancelling. */
export function runRequest(datasource, request) {
  const panelData = { series: [], timeRange: request.range, request };
  return from(datasource.query(request)).pipe(
    map(({ data, state }) => ({ ...panelData, state, series: data })),
    startWith({ ...panelData, state: LoadingState.Loading })
  );
}
