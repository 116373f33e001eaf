// Panel plugins. Those of Grafana are part of its application and not published, so these put the components of
// @grafana/ui together in the same way; see dashboards/README.md.
import {
  FieldColorModeId,
  FieldConfigProperty,
  PanelPlugin,
  VizOrientation,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  identityOverrideProcessor,
  standardFieldConfigEditorRegistry,
} from '@grafana/data';
import { BigValue, Table, TimeSeries, VizRepeater, useTheme2 } from '@grafana/ui';

import { StateTimeline } from './timeline.jsx';

// Options of a field that dashboards set. Grafana registers them with their editors in the application.
const OPTIONS = ['color', 'decimals', 'displayName', 'links', 'mappings', 'max', 'min', 'noValue', 'thresholds', 'unit'];
const CUSTOM = {
  timeseries: [
    'axisPlacement', 'drawStyle', 'fillOpacity', 'hideFrom', 'lineInterpolation', 'lineStyle', 'lineWidth', 'pointSize',
    'scaleDistribution', 'showPoints', 'spanNulls', 'stacking', 'thresholdsStyle',
  ],
  'state-timeline': ['fillOpacity', 'lineWidth'],
  table: ['align', 'cellOptions', 'filterable', 'hidden', 'minWidth', 'width'],
  stat: [],
};
const DEFAULTS = {
  timeseries: { axisPlacement: 'auto', drawStyle: 'line', lineInterpolation: 'linear', pointSize: 5 },
  table: { align: 'auto', cellOptions: { type: 'auto' } },
};

standardFieldConfigEditorRegistry.setInit(() =>
  OPTIONS.map((id) => ({
    id,
    path: id,
    name: id,
    editor: () => null,
    override: () => null,
    process: id === 'thresholds' ? (value) => bounded(value) : identityOverrideProcessor,
    shouldApply: () => true,
  }))
);

/** In JSON, the first threshold's value is null: no lower bound. */
export function bounded(thresholds) {
  return thresholds && { ...thresholds, steps: thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })) };
}

function Empty({ fieldConfig, width, height }) {
  const text = fieldConfig.defaults.noValue ?? 'No data';
  return (
    <div data-empty={text} style={{ width, height, display: 'grid', placeContent: 'center', textAlign: 'center' }}>
      {text}
    </div>
  );
}

function orEmpty(Component) {
  return function Panel(props) {
    const frames = props.data.series;
    return frames.some((frame) => frame.length) ? <Component {...props} frames={frames} theme={useTheme2()} /> : <Empty {...props} />;
  };
}

function Stat({ frames, fieldConfig, options, replaceVariables, renderCounter, theme, timeRange, timeZone, width, height }) {
  const { colorMode, graphMode, justifyMode, orientation, reduceOptions, text, textMode, wideLayout } = options;
  const values = () =>
    getFieldDisplayValues({
      data: frames,
      fieldConfig,
      reduceOptions,
      replaceVariables,
      sparkline: graphMode !== 'none',
      theme,
      timeZone,
    });
  return (
    <VizRepeater
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      itemSpacing={3}
      orientation={!orientation || orientation === 'auto' ? VizOrientation.Auto : orientation}
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
            text={text}
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
      renderCounter={renderCounter}
      autoGrid
    />
  );
}

function Lines({ frames, options, theme, timeRange, timeZone, width, height }) {
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      legend={options.legend}
      options={options}
      theme={theme}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
    />
  );
}

function Rows({ frames, options, width, height }) {
  const { cellHeight, showTypeIcons, sortBy } = options;
  return (
    <Table
      data={frames[0]}
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

const COMPONENTS = { stat: Stat, 'state-timeline': StateTimeline, table: Rows, timeseries: Lines };

/** Plugins by panel type. */
export function plugins() {
  return Object.entries(COMPONENTS).map(([type, Component]) => {
    const plugin = new PanelPlugin(orEmpty(Component));
    plugin.useFieldConfig({
      standardOptions:
        type === 'timeseries' ? { [FieldConfigProperty.Color]: { defaultValue: { mode: FieldColorModeId.PaletteClassic } } } : {},
      useCustomConfig: (builder) =>
        CUSTOM[type].forEach((id) =>
          builder.addCustomEditor({
            id,
            path: id,
            name: id,
            defaultValue: DEFAULTS[type]?.[id],
            editor: () => null,
            override: () => null,
            process: identityOverrideProcessor,
            shouldApply: () => true,
          })
        ),
    });
    return [type, plugin];
  });
}
