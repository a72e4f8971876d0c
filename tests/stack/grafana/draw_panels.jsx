// Draws the panels of a dashboard with Grafana's own components (@grafana/ui), from the answers in `window.input`:
// {panels: [{panel, answers}], variables, from, to, theme}. tests/stack/test_drawn.py has esbuild make one file of it.
import * as data from '@grafana/data';
import * as rxjs from 'rxjs';
import React from 'react';
import {createRoot} from 'react-dom/client';
import {BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, PanelChrome, TimeSeries} from '@grafana/ui';
import {TableNG} from '@grafana/ui/unstable';
import {ThemeContext} from '@grafana/data';
import panelData from './panel_data.cjs';

const {framesOf, figuresOf, replacer} = panelData(data, rxjs);
const {panels, variables, from, to, theme: kind} = window.input;
const theme = data.createTheme({colors: {mode: kind}});
const replaceVariables = replacer(variables);
const timeRange = {from: data.dateTime(from), to: data.dateTime(to), raw: {from: data.dateTime(from), to: data.dateTime(to)}};
const ROW = 30, GAP = 8; // as Grafana's grid has them
const LINE = {drawStyle: 'line', lineInterpolation: 'linear', showPoints: 'auto', pointSize: 5, spanNulls: false,
  axisPlacement: 'auto', scaleDistribution: {type: 'linear'}, stacking: {mode: 'none', group: 'A'}, thresholdsStyle: {mode: 'off'}};

const DRAWN = ['stat', 'table', 'timeseries'];

function Drawn({panel, frames, width, height}) {
  if (!DRAWN.includes(panel.type))
    return <div style={{padding: 8, color: theme.colors.text.secondary}}>Not drawn here: {panel.type}</div>;
  if (!frames.length || !frames.some((frame) => frame.length))
    return <div style={{display: 'flex', height, alignItems: 'center', justifyContent: 'center', color: theme.colors.text.secondary}}>
      {panel.fieldConfig?.defaults.noValue ?? 'No data'}</div>;
  if (panel.type === 'stat') {
    const figures = figuresOf(panel, frames, replaceVariables, theme);
    return <div style={{display: 'flex', height, width}}>{figures.map((each, index) =>
      <BigValue key={index} value={each.display} width={width / figures.length} height={height} theme={theme}
        colorMode={panel.options.colorMode ?? BigValueColorMode.Value} graphMode={BigValueGraphMode.None} count={figures.length} textMode={panel.options.textMode ?? BigValueTextMode.Auto} />)}</div>;
  }
  if (panel.type === 'table') {
    data.cacheFieldDisplayNames(frames); // as the panel does
    return <TableNG data={frames[0]} width={width} height={height} noValue={panel.fieldConfig.defaults.noValue} enablePagination
      fieldConfig={panel.fieldConfig} structureRev={1} getActions={() => []} timeRange={timeRange} />;
  }
  const lines = frames.map((frame, seriesIndex) => ({...frame, fields: frame.fields.map((field) => {
    if (field.type !== 'number') return field;
    const config = {...field.config, color: field.config.color ?? {mode: 'palette-classic'}, custom: {...LINE, ...field.config.custom}};
    const line = {...field, config, state: {...field.state, seriesIndex}};
    return {...line, display: data.getDisplayProcessor({field: line, theme, timeZone: 'utc'})};
  })}));
  return <TimeSeries frames={lines} width={width} height={height} timeRange={timeRange} timeZone="utc"
    legend={panel.options.legend} options={panel.options} />;
}

async function main() {
  const all = await Promise.all(panels.map(async (one) => ({panel: one.panel, frames: DRAWN.includes(one.panel.type) ? await framesOf(one, replaceVariables, theme) : []})));
  const column = (document.body.clientWidth + GAP) / 24;
  document.body.style.cssText += `;margin:0;background:${theme.colors.background.canvas};position:relative`;
  let bottom = 0;
  const places = all.map(({panel}) => {
    const {x, y, w, h} = panel.gridPos;
    bottom = Math.max(bottom, (y + h) * (ROW + GAP));
    return {left: x * column, top: y * (ROW + GAP), width: w * column - GAP, height: h * (ROW + GAP) - GAP};
  });
  document.body.style.height = `${bottom}px`;
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {all.map(({panel, frames}, index) => (
        <div key={panel.id ?? index} style={{position: 'absolute', ...places[index]}} data-title={panel.title}>
          <PanelChrome title={panel.title} description={panel.description} width={places[index].width} height={places[index].height}>
            {(width, height) => <Drawn panel={panel} frames={frames} width={width} height={height} />}
          </PanelChrome>
        </div>
      ))}
    </ThemeContext.Provider>
  );
  setTimeout(() => { document.body.dataset.drawn = 'yes'; }, 1500);
}
main().catch((error) => { document.body.innerText = error.stack; document.body.dataset.drawn = 'failed'; });
