// The stores' answers become frames, as the data sources make them; Grafana's own library (@grafana/data)
// transforms them, applies units and overrides and resolves links.
'use strict';
module.exports = (data, {lastValueFrom}) => {
const transformers = Object.values(data.standardTransformers);
data.standardTransformersRegistry.setInit(() =>
  transformers
    .filter((one, index) => transformers.findIndex((other) => other.id === one.id) === index)
    .map((one) => ({id: one.id, name: one.name, transformation: async () => one}))
);

const property = (id) => ({
  id, path: id.replace(/^custom\./, ''), name: id, isCustom: id.startsWith('custom.'),
  process: (value) => value, shouldApply: () => true, settings: {},
});
const properties = new data.Registry(() =>
  ['unit', 'min', 'max', 'decimals', 'mappings', 'thresholds', 'noValue', 'links', 'color',
   'displayName', 'custom.hideFrom.viz', 'custom.width', 'custom.minWidth', 'custom.wrapHeaderText', 'custom.cellOptions'].map(property)
);

// --- frames, as each data source makes them ---------------------------------------------------

const field = (name, type, values, config = {}, labels = undefined) => ({name, type, values, config, labels});
const legend = (target, labels) =>
  (target.legendFormat || '').replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '') ||
  `{${Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(', ')}}`;

function table(refId, series, valueName) {
  const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].sort();
  const time = series.map((one) => one.value[0] * 1000);
  const frame = {
    refId, length: series.length,
    fields: [
      field('Time', 'time', time),
      ...labels.map((label) => field(label, 'string', series.map((one) => one.metric[label] ?? ''), {filterable: true})),
      field(valueName, 'number', series.map((one) => parseFloat(one.value[1]))),
    ],
  };
  return frame;
}

function seriesFrames(refId, target, series) {
  return series.map(({metric, values}) => ({
    refId, length: values.length,
    fields: [
      field('Time', 'time', values.map(([time]) => time * 1000)),
      field('Value', 'number', values.map(([, value]) => parseFloat(value)), {displayNameFromDS: legend(target, metric)}, metric),
    ],
  }));
}

function prometheus(answers) {
  const tables = answers.filter(({target, answer}) => target.format === 'table' && answer.length);
  return answers.flatMap(({refId, target, answer}) =>
    target.format === 'table'
      ? answer.length ? [table(refId, answer, tables.length > 1 ? `Value #${refId}` : 'Value')] : []
      : seriesFrames(refId, target, answer)
  );
}

function loki(answers) {
  return answers.flatMap(({refId, target, answer}) => {
    if (target.queryType === 'instant') return answer.length ? [table(refId, answer, `Value #${refId}`)] : [];
    if (answer.some(({stream}) => stream)) {
      const lines = answer.flatMap(({stream, values}) => values.map(([time, line]) => [time / 1e6, line, stream]));
      return [{refId, length: lines.length, fields: [
        field('labels', 'other', lines.map((one) => one[2])), field('Time', 'time', lines.map((one) => one[0])),
        field('Line', 'string', lines.map((one) => one[1])),
      ]}];
    }
    return seriesFrames(refId, target, answer);
  });
}

function tempo(answers) {
  return answers.flatMap(({answer}) => {
    const spans = answer.flatMap((trace) =>
      (trace.spanSets || [trace.spanSet]).flatMap((set) => set.spans.map((span) => ({trace, span, set}))));
    const read = ({value}) => value.stringValue ?? value.intValue ?? value.doubleValue ?? value.boolValue;
    const attributes = ({span, set}) => Object.fromEntries(
      [...(set.attributes || []), ...(span.attributes || [])].map((one) => [one.key, read(one)]));
    const rows = spans.map(attributes);
    const keys = [...new Set(rows.flatMap(Object.keys))].sort((a, b) => a.localeCompare(b));
    const named = spans.some(({span}) => span.name);
    const of = (get) => spans.map(get);
    const fields = [
      field('traceIdHidden', 'string', of(({trace}) => trace.traceID), {custom: {hideFrom: {viz: true}}}),
      field('traceService', 'string', of(({trace}) => trace.rootServiceName || ''), {displayNameFromDS: 'Trace Service'}),
      field('traceName', 'string', of(({trace}) => trace.rootTraceName || ''), {displayNameFromDS: 'Trace Name'}),
      field('spanID', 'string', of(({span}) => span.spanID), {displayNameFromDS: 'Span ID', unit: 'string'}),
      field('time', 'time', of(({span}) => span.startTimeUnixNano / 1e6), {displayNameFromDS: 'Start time'}),
      field('name', 'string', of(({span}) => span.name), {displayNameFromDS: 'Name', custom: {hideFrom: {viz: !named}}}),
      ...keys.map((key) => field(key, 'string', rows.map((row) => row[key]), {displayNameFromDS: key})),
      field('duration', 'number', of(({span}) => parseInt(span.durationNanos, 10)), {displayNameFromDS: 'Duration', unit: 'ns'}),
    ];
    return [{name: 'Spans', refId: 'traces', length: spans.length, fields}];
  });
}

const STORES = {prometheus, loki, tempo};

// --- variables in links -----------------------------------------------------------------------

const strictly = (encode) => (text) =>
  encode(text).replace(/[!'()*]/g, (one) => '%' + one.charCodeAt(0).toString(16).toUpperCase());
const FORMATS = {percentencode: strictly(encodeURIComponent), uriencode: strictly(encodeURI), undefined: String};

function replacer(variables) {
  return (text, scoped, format) => text.replace(/\$\{(\w+)(?:\.([^:}]+))?(?::(\w+))?\}/g, (match, name, fieldPath, own) => {
    if (own === 'queryparam') return data.urlUtil.toUrlParams({[`var-${name}`]: variables[name]});
    if (name === '__url_time_range') return 'from=now-6h&to=now';
    const {frame, rowIndex, field: cell} = scoped?.__dataContext?.value ?? {};
    let value;
    if (name === '__value') value = cell.values[rowIndex];
    if (name === '__data') value = data.getFieldDisplayValuesProxy({frame, rowIndex})[fieldPath.replace(/^fields\./, '')];
    return value === undefined ? match : FORMATS[own ?? format](String(value));
  });
}

async function framesOf({panel, answers}, replaceVariables, theme = data.createTheme()) {
  let frames = Object.entries(STORES).flatMap(([store, make]) => make(answers.filter((one) => one.store === store)));
  frames = frames.map((frame) => data.toDataFrame(frame));
  frames = await lastValueFrom(data.transformDataFrame(panel.transformations ?? [], frames));
  return data.applyFieldOverrides({
    data: frames, fieldConfig: panel.fieldConfig, replaceVariables, theme,
    fieldConfigRegistry: properties, timeZone: 'utc',
  });
}

function figuresOf(panel, frames, replaceVariables, theme = data.createTheme()) {
  const figures = data.getFieldDisplayValues({
    data: frames, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables, theme, timeZone: 'utc',
  });
  return figures.filter(({display}) => display.numeric === display.numeric || display.text !== panel.fieldConfig.defaults.noValue);
}

data.locationUtil.initialize({config: {appSubUrl: ''}, getVariablesUrlParams: () => ({}), getTimeRangeForUrl: () => ({})});
return {framesOf, figuresOf, replacer};
};
