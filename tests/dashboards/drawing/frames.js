// From Prometheus's answers to a panel's queries to Grafana's data frames, with the panel's transformations and field
// options applied by @grafana/data. Building the frames is our code: in Grafana, that is the data source's task.
import {
  FieldType,
  Registry,
  applyFieldOverrides,
  createDataFrame,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

// Some are exported under two names.
standardTransformersRegistry.setInit(() =>
  [...new Set(Object.values(standardTransformers))].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    transformation,
    editor: () => null,
  }))
);

// Options of a field that the dashboards set. Grafana registers these with their editors in the application.
const OPTIONS = ['color', 'decimals', 'displayName', 'links', 'mappings', 'max', 'min', 'noValue', 'thresholds', 'unit'];

// Defaults of the panel types, which Grafana adds when it loads a dashboard.
const TYPE_DEFAULTS = {
  timeseries: {
    color: { mode: 'palette-classic' },
    custom: { axisPlacement: 'auto', drawStyle: 'line', lineInterpolation: 'linear', pointSize: 5 },
  },
};

/** The frames of a panel as Grafana would hand them to the panel's component. */
export async function framesOf({ panel, answers }, theme, timeZone) {
  const frames = panel.targets.flatMap((target) => fromAnswer(target, answers[target.refId], panel.targets.length));
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], frames));
  return applyFieldOverrides({
    data: transformed,
    fieldConfig: fieldConfigOf(panel),
    fieldConfigRegistry: optionsOf(panel),
    replaceVariables: (text) => text,
    theme,
    timeZone,
  });
}

/** The panel's field options on top of its type's defaults. In JSON, the first threshold's value is null: no lower bound. */
export function fieldConfigOf(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const ofType = TYPE_DEFAULTS[panel.type] ?? {};
  return {
    defaults: unbounded({ ...ofType, ...defaults, custom: { ...ofType.custom, ...defaults.custom } }),
    overrides: overrides.map(({ matcher, properties }) => ({
      matcher,
      properties: properties.map((one) => (one.id === 'thresholds' ? { ...one, value: bounds(one.value) } : one)),
    })),
  };
}

function unbounded(defaults) {
  return defaults.thresholds ? { ...defaults, thresholds: bounds(defaults.thresholds) } : defaults;
}

function bounds(thresholds) {
  const steps = thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity }));
  return { ...thresholds, steps };
}

function optionsOf(panel) {
  const { defaults, overrides } = fieldConfigOf(panel);
  const overridden = overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const custom = [
    ...Object.keys(defaults.custom).map((name) => `custom.${name}`),
    ...overridden.filter((id) => id.startsWith('custom.')),
  ];
  return new Registry(() =>
    [...OPTIONS, ...new Set(custom)].map((id) => ({
      id,
      name: id,
      path: id.replace(/^custom\./, ''),
      isCustom: id.startsWith('custom.'),
      process: (value) => value,
      shouldApply: () => true,
    }))
  );
}

function fromAnswer(target, answer, queries) {
  if (target.format === 'table') {
    return answer.series.length ? [table(target.refId, answer.series, queries)] : [];
  }
  return answer.series.map(({ labels, values }) =>
    createDataFrame({
      refId: target.refId,
      fields: [
        // Grafana breaks a line where samples are farther apart than the interval.
        { name: 'Time', type: FieldType.time, values: values.map(([at]) => at * 1000), config: { interval: answer.step * 1000 } },
        {
          name: 'Value',
          type: FieldType.number,
          labels,
          values: values.map(([, value]) => value),
          config: target.legendFormat ? { displayNameFromDS: legend(target.legendFormat, labels) } : {},
        },
      ],
    })
  );
}

function legend(format, labels) {
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');
}

function table(refId, series, queries) {
  const names = [...new Set(series.flatMap(({ labels }) => Object.keys(labels)))].sort();
  const samples = series.map(({ values }) => values.at(-1));
  return createDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: samples.map(([at]) => at * 1000) },
      ...names.map((name) => ({
        name,
        type: FieldType.string,
        values: series.map(({ labels }) => labels[name] ?? ''),
        config: { filterable: true },
      })),
      {
        name: queries > 1 ? `Value #${refId}` : 'Value',
        type: FieldType.number,
        values: samples.map(([, value]) => value),
      },
    ],
  });
}
