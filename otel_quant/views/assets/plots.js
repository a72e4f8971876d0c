"use strict";
// Draws the charts of a page from its data. The formats of values are the same as in units.py.
(() => {
  const source = document.getElementById("data");
  if (source === null) return;
  const { until, bands: rows, charts } = JSON.parse(source.textContent);
  const MOST_ROWS = 6, LANE = 16;
  const bands = rows.map(([name, start, end, row, depth, state]) =>
    ({ name, start, end, row, depth, state, isBad: ["failed", "killed", "lost"].includes(state) }));
  const innermostBad = bands.filter((band) => band.isBad && !bands.some((inner) =>
    inner.isBad && inner.row > band.row && inner.start < band.end && inner.end > band.start));
  const lanes = Math.min(MOST_ROWS, 1 + Math.max(-1, ...bands.map((band) => band.row)));
  const plots = [];

  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const digits = (value) => {
    const places = Math.max(0, 3 - String(Math.trunc(Math.abs(value))).length);
    return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  };
  const size = (value) => {
    const names = ["B", "kB", "MB", "GB", "TB", "PB"];
    let left = Math.abs(value), power = 0;
    for (; left >= 999.5 && power < names.length - 1; power += 1) left /= 1000;
    const places = power === 0 || left >= 99.95 ? 0 : left >= 9.995 ? 1 : 2;
    return `${left.toFixed(places)} ${names[power]}`;
  };
  const units = {
    bytes: size,
    "bytes/s": (value) => `${size(value)}/s`,
    cores: (value) => `${digits(value)} cores`,
  };
  units["1"] = (value) => share(value);
  const plain = (unit) => (value) => `${digits(value)} ${unit.replace(/[{}]/g, "")}`;
  const short = {
    bytes: (value) => (value === 0 ? "0" : size(value).replace(/\.0+(?= )|(\.\d*?[1-9])0+(?= )/, "$1")),
    cores: (value) => String(Number(value.toFixed(2))),
  };
  short["bytes/s"] = (value) => (value === 0 ? "0" : `${short.bytes(value)}/s`);
  for (const { unit } of charts) {
    units[unit] ||= plain(unit);
    short[unit] ||= units[unit];
  }
  const clock = (seconds) => {
    const all = Math.round(seconds);
    const two = (number) => String(number).padStart(2, "0");
    const hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
    return hours ? `${hours}:${two(minutes)}:${two(all % 60)}` : `${minutes}:${two(all % 60)}`;
  };
  const share = (value) => `${(100 * value).toFixed(100 * value < 1 ? 2 : 1)} %`;

  const openAt = (time) =>
    bands.filter((band) => band.start <= time && time <= band.end).sort((a, b) => a.row - b.row);
  const stepText = (band) => (band.state === "ended" ? band.name : `${band.name} (${band.state})`);

  // A busy machine delays a reading: only a longer pause is a gap.
  const pause = (chart) => Math.max(2, 3 * (chart.every || 0));
  const TIMES = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300,
    600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800];
  const timeOn = (seconds, step) => (step < 1 ? `${Number(seconds.toFixed(3))} s` : clock(seconds));

  function timesOf(chart) {
    if (chart.times) return chart.times;
    return Array.from({ length: chart.count }, (_, at) => chart.start + at * chart.every);
  }

  // Every chart begins at 0 and ends with the recording, so that one zoom fits all of them.
  function aligned(chart) {
    const times = timesOf(chart);
    const before = times.length === 0 || times[0] > 0 ? [null] : [];
    const after = times.length === 0 || times[times.length - 1] < until ? [null] : [];
    const values = chart.series.map((series) => [
      ...before, ...series.values.map((value) => (value === null ? null : value * chart.step)), ...after,
    ]);
    return {
      times: [...before.map(() => 0), ...times, ...after.map(() => until)],
      values, first: before.length, count: times.length,
    };
  }

  // From the top of the pile, so that each area covers the part that belongs to those below.
  function layersOf(chart, values) {
    const layers = [];
    const inPile = values.filter((_, at) => chart.series[at].style === "stacked");
    // Nothing of a process that has ended, where others are known: else a line would span the gap.
    let pile = inPile.length ? inPile[0].map((_, point) => (inPile.some((each) => each[point] !== null) ? 0 : null)) : null;
    let stacked = 0;
    chart.series.forEach((series, at) => {
      if (series.style !== "stacked") return;
      pile = pile.map((below, point) => (below === null ? null : below + (values[at][point] || 0)));
      const name = `s${Math.min(5, stacked++)}`;
      layers.unshift({ label: series.label, data: pile, name, options: { fill: () => color(name), stroke: () => color("paper"), width: 0.5 } });
    });
    const hasPile = pile !== null;
    chart.series.forEach((series, at) => {
      const data = values[at];
      if (series.style === "lowest") {
        // Below the main series, whose line it would cover.
        layers.unshift({ label: series.label, data, options: { fill: () => color("area"), width: 0 } });
      } else if (series.style === "second") {
        layers.push({ label: series.label, data, name: "second", options: { stroke: () => color("second"), width: 1.25, dash: [4, 3] } });
      } else if (series.style === "main") {
        const fill = hasPile || chart.series.some((other) => other.style === "lowest")
          ? undefined : () => color("area");
        layers.push({ label: series.label, data, name: "accent", isMain: true, options: { stroke: () => color("accent"), width: 1.5, fill } });
      }
    });
    return layers;
  }

  function drawBands(u, isLarge) {
    const { ctx, bbox } = u, ratio = devicePixelRatio, right = bbox.left + bbox.width;
    const at = (time) => Math.min(right, Math.max(bbox.left, u.valToPos(time, "x", true)));
    ctx.save();
    bands.filter((band) => band.row === 0).forEach((band, number) => {
      const x = at(band.start), width = at(band.end) - x;
      if (width <= 0) return;
      ctx.fillStyle = color(number % 2 ? "band-b" : "band-a");
      ctx.fillRect(x, bbox.top, width, bbox.height);
    });
    for (const band of innermostBad) {
      ctx.fillStyle = color("bad-tint");
      ctx.fillRect(at(band.start), bbox.top, Math.max(ratio, at(band.end) - at(band.start)), bbox.height);
    }
    if (isLarge) {
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      for (const band of bands) drawLane(ctx, band, at, ratio, bbox.top - lanes * LANE * ratio);
    }
    ctx.restore();
  }

  function drawLane(ctx, band, at, ratio, top) {
    const x = at(band.start), width = Math.max(band.isBad ? 2 * ratio : 0, at(band.end) - x);
    if (width <= 0 || band.row >= MOST_ROWS) return;
    const y = top + band.row * LANE * ratio, height = (LANE - 1) * ratio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, width, height);
    ctx.clip();
    ctx.fillStyle = color(band.isBad ? "bad-tint" : "lane");
    ctx.fillRect(x, y, width, height);
    if (band.isBad) {  // stripes: colour alone would not be seen by everyone
      ctx.strokeStyle = color("bad");
      ctx.globalAlpha = 0.35;
      ctx.beginPath();
      for (let from = x - height; from < x + width; from += 6 * ratio) {
        ctx.moveTo(from, y + height);
        ctx.lineTo(from + height, y);
      }
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.lineWidth = 2 * ratio;
      ctx.strokeRect(x, y, width, height);
    } else {
      ctx.fillStyle = color("paper");
      ctx.fillRect(x + width - ratio, y, ratio, height);
    }
    if (width > 18 * ratio) {
      ctx.fillStyle = color(band.isBad ? "bad" : "lane-ink");
      const mark = band.isBad ? "✕ " : band.state === "running" ? "… " : "";
      const label = fitted(ctx, mark + band.name, width - 8 * ratio);
      if (label) ctx.fillText(label, x + 4 * ratio, y + height / 2 + 0.5 * ratio);
    }
    ctx.restore();
  }

  function fitted(ctx, text, width) {
    if (ctx.measureText(text).width <= width) return text;
    let length = Math.floor((text.length * width) / ctx.measureText(text).width);
    while (length > 0 && ctx.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
    return length > 1 ? `${text.slice(0, length)}…` : "";
  }

  function drawOver(u, chart) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - 2 * ratio, bbox.width, bbox.height + 4 * ratio);
    ctx.clip();
    const { limit, mark } = chart;
    if (limit && limit.value <= chart.top) {
      const y = u.valToPos(limit.value, "y", true);
      ctx.strokeStyle = ctx.fillStyle = color("bad");
      ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.textAlign = "left";
      ctx.textBaseline = y - bbox.top > 16 * ratio ? "bottom" : "top";
      const text = `${limit.label} ${units[chart.unit](limit.value)}`;
      ctx.fillText(text, bbox.left + 4 * ratio, y + (ctx.textBaseline === "top" ? 3 : -2) * ratio);
    }
    if (mark && mark.time >= u.scales.x.min && mark.time <= u.scales.x.max) {
      const x = u.valToPos(mark.time, "x", true), y = u.valToPos(mark.value, "y", true);
      ctx.fillStyle = color("accent");
      ctx.beginPath();
      ctx.arc(x, y, 3 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      if (chart.large) {
        const isLeft = x > bbox.left + bbox.width / 2;
        ctx.fillStyle = color("ink");
        ctx.textAlign = isLeft ? "right" : "left";
        ctx.textBaseline = "middle";
        const line = limit ? u.valToPos(limit.value, "y", true) : -Infinity;
        // Above the curve, which may be level, unless the limit is there.
        const beside = Math.abs(y - 10 * ratio - line) < 10 * ratio ? 14 * ratio : -10 * ratio;
        ctx.fillText(mark.label, x + (isLeft ? -8 : 8) * ratio, Math.max(y + beside, bbox.top + 7 * ratio));
      }
    }
    ctx.restore();
  }

  // The reading at a point, or beside it where a reading was late; null where none was taken.
  function nearest(chart, all, wanted) {
    if (wanted == null) return null;
    const isRead = (at) => at >= all.first && at < all.first + all.count
      && all.values.some((values) => values[at] !== null);
    for (let away = 0; away < all.times.length; away += 1) {
      for (const at of [wanted - away, wanted + away]) {
        if (Math.abs(all.times[at] - all.times[wanted]) > pause(chart)) continue;
        if (isRead(at)) return at;
      }
      if (away * (chart.every || pause(chart)) > pause(chart)) return null;
    }
    return null;
  }

  function readingText(chart, all, point) {
    const time = all.times[point], half = (chart.every || 0) / 2;
    const when = chart.every >= 2 ? `${clock(time - half)} to ${clock(time + half)}`
      : until < 60 ? `${time.toFixed(2)} s` : clock(time);
    const open = openAt(time).map(stepText);
    const inside = (chart.large ? open : open.slice(-1)).join(" > ") || "no step";
    const order = chart.series.map((series, at) => ({ ...series, value: all.values[at][point] }))
      .sort((a, b) => (b.style === "main") - (a.style === "main"));
    const figures = order.map(({ label, style, value }) => {
      if (value === null) return `${label} not read`;
      const of = style === "main" && chart.limit && chart.limit.value
        ? ` (${share(value / chart.limit.value)} of ${units[chart.unit](chart.limit.value)})` : "";
      return `${label} ${units[chart.unit](value)}${of}`;
    });
    return `${when} · ${inside} · ${figures.join(", ")}`;
  }

  function legend(figure, layers) {
    const named = layers.filter((layer) => layer.name);
    if (named.length < 2) return;
    const list = document.createElement("ul");
    list.className = "legend";
    for (const { label, name } of [...named].reverse()) {
      const item = document.createElement("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of [["width", 10], ["height", 10], ["aria-hidden", true]]) swatch.setAttribute(key, value);
      box.setAttribute("width", 10);
      box.setAttribute("height", name[0] === "s" && name !== "second" ? 10 : 3);
      box.setAttribute("y", name[0] === "s" && name !== "second" ? 0 : 4);
      box.style.fill = `var(--${name})`;
      swatch.append(box);
      item.append(swatch, label);
      list.append(item);
    }
    figure.querySelector("figcaption").append(list);
  }

  function build(chart) {
    const figure = document.getElementById(`chart-${chart.id}`);
    const plot = figure.querySelector(".plot"), reading = figure.querySelector(".reading");
    const summary = reading.textContent;
    const all = aligned(chart), layers = layersOf(chart, all.values);
    const main = 1 + layers.findIndex((layer) => layer.isMain);
    const lowest = 1 + layers.findIndex((layer) => layer.label === "lowest");
    const height = () => (chart.large ? 300 + lanes * LANE : chart.flat ? 64 : 140);
    const font = "11px system-ui, sans-serif";
    figure.classList.add("live");
    const u = new uPlot({
      width: plot.clientWidth, height: height(),
      padding: [chart.large ? lanes * LANE + 4 : 6, 22, 0, 0],
      legend: { show: false },
      cursor: {
        y: false, sync: { key: "time", scales: ["x", null], setSeries: false },
        points: { show: (self, at) => (at === main ? undefined : false), size: 7, fill: () => color("accent") },
      },
      select: { show: true },
      scales: { x: { time: false }, y: { range: () => [0, chart.top] } },
      axes: [
        { stroke: () => color("quiet"), font, incrs: TIMES, size: 24, gap: 3, grid: { show: false },
          ticks: { stroke: () => color("rule"), size: 4 }, space: 80,
          values: (self, splits, axis, space, step) => splits.map((time) => timeOn(time, step)) },
        { stroke: () => color("quiet"), font, size: 64, gap: 4, space: chart.large ? 45 : 32,
          grid: { stroke: () => color("rule"), width: 1 }, ticks: { show: false },
          values: (self, splits) => splits.map((value) => short[chart.unit](value)) },
      ],
      series: [{}, ...layers.map(({ label, options }) => ({
        label, scale: "y", ...options,
        gaps: (self, series, from, to, gaps) => gaps.filter(([left, right]) =>
          self.posToVal(right, "x", true) - self.posToVal(left, "x", true) > pause(chart)),
        points: { show: all.count < 3, size: 5, fill: () => color("accent") },
      }))],
      bands: main && lowest ? [{ series: [main, lowest], fill: () => color("s1") }] : [],
      hooks: {
        drawClear: [(self) => drawBands(self, chart.large)],
        draw: [(self) => drawOver(self, chart)],
        setCursor: [(self) => {
          const point = self.cursor.left < 0 ? null : nearest(chart, all, self.cursor.idx);
          reading.textContent = point === null ? summary : readingText(chart, all, point);
        }],
        setScale: [(self, key) => {
          if (key !== "x") return;
          const { min, max } = self.scales.x;
          for (const other of plots) {
            if (other !== self && (other.scales.x.min !== min || other.scales.x.max !== max)) {
              other.setScale("x", { min, max });
            }
          }
        }],
      },
    }, [all.times, ...layers.map((layer) => layer.data)], plot);
    legend(figure, layers);
    plots.push(u);
    new ResizeObserver(() => {
      if (plot.clientWidth && plot.clientWidth !== u.width) {
        u.setSize({ width: plot.clientWidth, height: height() });
      }
    }).observe(plot);
    keyboard(u, chart, plot, reading, all);
  }

  function keyboard(u, chart, plot, reading, all) {
    let point = null;
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-roledescription", "chart");
    plot.setAttribute("aria-labelledby", `title-${chart.id}`);
    plot.setAttribute("aria-describedby", `reading-${chart.id} keys`);
    const show = (wanted) => {
      point = Math.min(all.first + all.count - 1, Math.max(all.first, wanted));
      const { min, max } = u.scales.x, time = all.times[point];
      if (time < min || time > max) {
        const from = Math.max(0, Math.min(until - (max - min), time - (max - min) / 2));
        u.batch(() => u.setScale("x", { min: from, max: from + max - min }));
      }
      queueMicrotask(() => u.setCursor({ left: u.valToPos(time, "x"), top: 1 }));
    };
    const zoom = (factor) => {
      const { min, max } = u.scales.x;
      const middle = point === null ? (min + max) / 2 : all.times[point];
      const half = Math.min(until, (max - min) * factor) / 2;
      const from = Math.max(0, Math.min(until - 2 * half, middle - half));
      u.setScale("x", { min: from, max: from + 2 * half });
    };
    const here = () => point ?? (chart.mark
      ? all.times.findIndex((time) => time >= chart.mark.time) : all.first - 1);
    const keys = {
      ArrowRight: (many) => show(here() + many), ArrowLeft: (many) => show(here() - many),
      Home: () => show(all.first), End: () => show(all.first + all.count - 1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      Escape: () => u.setScale("x", { min: 0, max: until }),
    };
    plot.addEventListener("keydown", (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey || all.count === 0) return;
      event.preventDefault();
      act(event.shiftKey ? 10 : 1);
    });
    plot.addEventListener("focus", () => reading.setAttribute("aria-live", "polite"));
    plot.addEventListener("blur", () => {
      reading.removeAttribute("aria-live");
      point = null;
      u.setCursor({ left: -10, top: -10 });
    });
  }

  charts.forEach(build);
  document.documentElement.classList.add("has-live");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const u of plots) u.redraw(true, true);
  });
})();
