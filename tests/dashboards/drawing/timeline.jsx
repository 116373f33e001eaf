// The state timeline. Its component is part of the Grafana application, not of the libraries: the bars are our drawing.
// Chart, axes, time scale and legend are @grafana/ui's, words and colors come from @grafana/data.
import { FALLBACK_COLOR, FieldType, getFieldDisplayName } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { GraphNG, Pagination, UPlotConfigBuilder, VizLayout, VizLegend } from '@grafana/ui';

const FONT_SIZE = 12;
const PADDING = 4;
const PAGES_HEIGHT = 40;

/** The first page, as Grafana since 11.2 shows it. */
export function StateTimeline({ frames, height, ...others }) {
  const { perPage = frames.length } = others.options;
  const pages = Math.ceil(frames.length / perPage);
  if (pages < 2) {
    return <Page frames={frames} height={height} {...others} />;
  }
  return (
    <>
      <Page frames={frames.slice(0, perPage)} height={height - PAGES_HEIGHT} {...others} />
      <Pagination currentPage={1} numberOfPages={pages} onNavigate={() => {}} />
    </>
  );
}

function Page({ frames, options, theme, timeRange, timeZone, width, height }) {
  return (
    <GraphNG
      frames={frames}
      structureRev={1}
      theme={theme}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
      propsToDiff={[]}
      prepConfig={(aligned, _, range) => configOf(aligned, range, options, theme, timeZone)}
      renderLegend={() => (
        <VizLayout.Legend placement="bottom">
          <VizLegend placement="bottom" displayMode="list" items={statesOf(frames)} />
        </VizLayout.Legend>
      )}
    />
  );
}

function configOf(aligned, range, { rowHeight, alignValue }, theme, timeZone) {
  const rows = aligned.fields.slice(1);
  const builder = new UPlotConfigBuilder(timeZone);
  builder.setPrepData(([frame]) => frame.fields.map((field) => field.values));
  builder.addScale({
    scaleKey: 'x',
    isTime: true,
    orientation: ScaleOrientation.Horizontal,
    direction: ScaleDirection.Right,
    range: () => [range().from.valueOf(), range().to.valueOf()],
  });
  builder.addScale({
    scaleKey: 'y',
    isTime: false,
    orientation: ScaleOrientation.Vertical,
    direction: ScaleDirection.Up,
    range: [0, rows.length],
  });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone, theme, grid: { show: true } });
  builder.addAxis({
    scaleKey: 'y',
    placement: AxisPlacement.Left,
    theme,
    grid: { show: false },
    ticks: { show: false },
    splits: () => rows.map((_, number) => rows.length - number - 0.5),
    values: () => rows.map((field) => getFieldDisplayName(field, aligned)),
  });
  for (const field of rows) {
    builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, fieldName: getFieldDisplayName(field, aligned) });
  }
  builder.addHook('draw', (chart) => drawRows(chart, rows, { rowHeight, alignValue, theme }));
  return builder;
}

function drawRows(chart, rows, { rowHeight, alignValue, theme }) {
  const { ctx } = chart;
  const ratio = window.devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(chart.bbox.left, chart.bbox.top, chart.bbox.width, chart.bbox.height);
  ctx.clip();
  ctx.font = `${FONT_SIZE * ratio}px ${theme.typography.fontFamily}`;
  ctx.textBaseline = 'middle';
  ctx.textAlign = alignValue;
  const thick = (chart.bbox.height / rows.length) * rowHeight;
  rows.forEach((field, number) => {
    const middle = chart.valToPos(rows.length - number - 0.5, 'y', true);
    for (const { from, to, value } of stretches(chart.data[0], field.values, chart.scales.x.max)) {
      const { text, color } = field.display(value);
      const left = chart.valToPos(from, 'x', true);
      const wide = chart.valToPos(to, 'x', true) - left;
      ctx.globalAlpha = field.config.custom.fillOpacity / 100;
      ctx.fillStyle = color ?? FALLBACK_COLOR;
      ctx.fillRect(left, middle - thick / 2, wide, thick);
      ctx.globalAlpha = 1;
      if (ctx.measureText(text).width + 2 * PADDING * ratio < wide) {
        ctx.fillStyle = theme.colors.getContrastText(color ?? FALLBACK_COLOR);
        ctx.fillText(text, left + PADDING * ratio, middle);
      }
    }
  });
  ctx.restore();
}

/** Times of one state without a break, merged as with the panel's option mergeValues. */
function stretches(times, values, end) {
  const found = [];
  values.forEach((value, index) => {
    const previous = found.at(-1);
    if (previous?.open && previous.value !== value) {
      previous.to = times[index];
      previous.open = false;
    }
    if (value != null && !found.at(-1)?.open) {
      found.push({ from: times[index], to: end, value, open: true });
    }
  });
  return found;
}

/** Legend entries of the states that the frames contain, in the order of the panel's value mappings. */
function statesOf(frames) {
  const seen = new Map();
  for (const field of frames.flatMap(({ fields }) => fields).filter(({ type }) => type === FieldType.number)) {
    for (const value of field.values.filter((each) => each != null)) {
      const { text, color } = field.display(value);
      const order = field.config.mappings?.[0]?.options?.[value]?.index ?? Infinity;
      seen.set(text, { label: text, color: color ?? FALLBACK_COLOR, yAxis: 1, order });
    }
  }
  return [...seen.values()].sort((one, other) => one.order - other.order);
}
