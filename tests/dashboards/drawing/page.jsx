// The page of `make pictures`: panels of a dashboard, drawn with Grafana's libraries from `window.PICTURE`, which
// tests/dashboards/pictures.py writes: what a Prometheus answers to the panels' queries. `window.DRAWN` is a promise.
import {
  ThemeContext,
  VizOrientation,
  createTheme,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries, VizRepeater } from '@grafana/ui';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';

import { fieldConfigOf, framesOf } from './frames.js';
import { StateTimeline } from './timeline.jsx';

const TIME_ZONE = 'utc';
// The dashboard's grid, in pixels.
const COLUMNS = 24;
const ROW_HEIGHT = 30;
const GAP = 8;

function Stat({ frames, panel, theme, timeRange, width, height }) {
  const { colorMode, graphMode, justifyMode, orientation, reduceOptions, textMode, wideLayout } = panel.options;
  const values = () =>
    getFieldDisplayValues({
      data: frames,
      fieldConfig: fieldConfigOf(panel),
      reduceOptions,
      replaceVariables: (text) => text,
      sparkline: graphMode !== 'none',
      theme,
      timeZone: TIME_ZONE,
    });
  return (
    <VizRepeater
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      itemSpacing={3}
      orientation={orientation === 'auto' ? VizOrientation.Auto : orientation}
      width={width}
      height={height}
      renderValue={({ value, width, height, alignmentFactors, count }) => {
        if (value.sparkline) {
          value.sparkline.timeRange = timeRange;
        }
        return (
          <BigValue
            value={value.display}
            count={count}
            sparkline={value.sparkline}
            colorMode={colorMode}
            graphMode={graphMode}
            justifyMode={justifyMode}
            textMode={textMode}
            alignmentFactors={alignmentFactors}
            wideLayout={wideLayout}
            width={width}
            height={height}
            theme={theme}
          />
        );
      }}
      source={frames}
      renderCounter={0}
      autoGrid
    />
  );
}

function Lines({ frames, panel, theme, timeRange, width, height }) {
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      legend={panel.options.legend}
      options={panel.options}
      theme={theme}
      timeRange={timeRange}
      timeZone={TIME_ZONE}
      width={width}
      height={height}
    />
  );
}

function Timeline(props) {
  return <StateTimeline {...props} options={props.panel.options} timeZone={TIME_ZONE} />;
}

function Rows({ frames, panel, width, height }) {
  const [frame] = frames;
  const { cellHeight, showTypeIcons, sortBy } = panel.options ?? {};
  return (
    <Table
      data={frame}
      width={width}
      height={height}
      noHeader={false}
      showTypeIcons={showTypeIcons}
      resizable
      initialSortBy={sortBy}
      cellHeight={cellHeight}
    />
  );
}

const COMPONENTS = { stat: Stat, 'state-timeline': Timeline, table: Rows, timeseries: Lines };

function Panel({ drawn, frames, theme, timeRange, unit }) {
  const { panel, place } = drawn;
  const Component = COMPONENTS[panel.type];
  const left = place.x * unit;
  const top = place.y * (ROW_HEIGHT + GAP);
  const width = place.w * unit - GAP;
  const height = place.h * (ROW_HEIGHT + GAP) - GAP;
  const empty = !frames.some((frame) => frame.length);
  return (
    <div style={{ position: 'absolute', left, top, width, height }}>
      <PanelChrome title={panel.title} width={width} height={height}>
        {(innerWidth, innerHeight) =>
          empty ? (
            <div style={{ height: innerHeight, display: 'grid', placeContent: 'center' }}>
              {panel.fieldConfig.defaults.noValue ?? 'No data'}
            </div>
          ) : (
            <Component {...{ frames, panel, theme, timeRange }} width={innerWidth} height={innerHeight} />
          )
        }
      </PanelChrome>
    </div>
  );
}

function inTheme(theme, children) {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {children}
    </ThemeContext.Provider>
  );
}

async function draw({ from, to, width, note, panels }) {
  const now = to * 1000;
  Date.now = () => now; // "20 minutes ago" is relative to the moment shown
  const theme = createTheme({ colors: { mode: 'dark' } });
  const timeRange = { from: dateTime(from * 1000), to: dateTime(now), raw: { from: dateTime(from * 1000), to: dateTime(now) } };
  const frames = await Promise.all(panels.map((drawn) => framesOf(drawn, theme, TIME_ZONE)));
  const bottom = Math.max(...panels.map(({ place }) => place.y + place.h)) * (ROW_HEIGHT + GAP);
  const root = createRoot(document.getElementById('root'));
  flushSync(() => root.render(inTheme(theme)));
  // Charts measure and draw texts once: the fonts, which the style sheet names, must be there before.
  await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
  const content = (
    <>
      <div style={{ position: 'relative', width, height: bottom, margin: GAP }}>
        {panels.map((drawn, number) => (
          <Panel key={drawn.panel.id} {...{ drawn, theme, timeRange }} frames={frames[number]} unit={(width + GAP) / COLUMNS} />
        ))}
      </div>
      <div style={{ margin: GAP, color: theme.colors.text.secondary, fontSize: 12 }}>{note}</div>
    </>
  );
  root.render(inTheme(theme, content));
  await new Promise((done) => setTimeout(done, 1500)); // charts and tables draw in effects, some of them twice
}

window.DRAWN = draw(window.PICTURE);
