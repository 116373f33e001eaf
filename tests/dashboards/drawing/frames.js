// From Prometheus's answers to Grafana's data frames, as the Prometheus data source builds them. In Grafana that is the
// task of a plugin which is not published as a library, so this is our code.
import { FieldType, createDataFrame } from '@grafana/data';

/** The frames of a query: one for each series, or one table. `step` is in seconds. */
export function framesOf(target, series, step, queries) {
  if (target.format === 'table') {
    return series.length ? [table(target.refId, series, queries)] : [];
  }
  return series.map(({ labels, values }) =>
    createDataFrame({
      refId: target.refId,
      fields: [
        // Grafana breaks a line where samples are farther apart than the interval.
        { name: 'Time', type: FieldType.time, values: values.map(([at]) => at * 1000), config: { interval: step * 1000 } },
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
