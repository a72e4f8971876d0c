// Shows panels as Grafana would (panel_data.cjs), as text.
//
//   node show_panels.cjs FOLDER_OF_GRAFANA_DATA
//
// Each line of the input: {panels: [{panel, answers: [{refId, store, target, answer}]}], variables}.
// The line of the output for it: for each panel its frames, each a list of columns
// {name, values, unit, hidden, links}, values as a person reads them; of a panel with figures one
// frame, a column for each.
'use strict';
const path = require('path');
const modules = path.join(process.argv[2], 'node_modules');
const use = (name) => require(require.resolve(name, {paths: [modules]}));

const data = use('@grafana/data');
global.window = global;
global.navigator ??= {languages: ['en-US'], language: 'en-US'};
const {framesOf, figuresOf, replacer} = require('./panel_data.cjs')(data, use('rxjs'));

async function shown({panel, answers}, replaceVariables) {
  const frames = await framesOf({panel, answers}, replaceVariables);
  if (panel.type === 'stat')
    return [figuresOf(panel, frames, replaceVariables).map(({display, field: config}) => ({
      name: display.title ?? '', unit: config.unit ?? null, hidden: false,
      values: [data.formattedValueToString(display)], links: [],
    }))];
  return frames.map((frame) => frame.fields.map((one) => ({
    name: data.getFieldDisplayName(one, frame, frames),
    unit: one.config.unit ?? null,
    hidden: one.config.custom?.hideFrom?.viz ?? false,
    values: one.values.map((value) =>
      one.display ? data.formattedValueToString(one.display(value)) : JSON.stringify(value)),
    links: one.values.map((_, valueRowIndex) => (one.getLinks?.({valueRowIndex}) ?? []).map((link) => link.href)).filter((links) => links.length),
  })));
}

async function main() {
  for await (const line of require('readline').createInterface({input: process.stdin})) {
    const input = JSON.parse(line);
    const replaceVariables = replacer(input.variables);
    const output = [];
    for (const one of input.panels) output.push(await shown(one, replaceVariables));
    process.stdout.write(JSON.stringify(output) + '\n');
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
