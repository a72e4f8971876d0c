"use strict";
// Draws the lines of code of steps as an icicle: callers above what they call, wide where they took much.
(() => {
  const SMALLEST = 0.003, ROW = 20, DEEPEST = 60, MOST = 10;
  const rounded = (value) => (value < 100 ? value.toPrecision(3) : value.toFixed());
  const size = (value) => {
    const power = value >= 1e9 ? 2 : value >= 1e6 ? 1 : 0;
    return `${rounded(value / 1000 ** (power + 1))} ${["kB", "MB", "GB"][power]}`;
  };
  const seconds = (value) => `${rounded(value / 1e6)} s`;
  const measures = {
    time: { at: 2, text: seconds, title: "Lines with the most time of their own" },
    "memory growth": { at: 3, text: size, title: "Lines with the most memory growth of their own" },
  };
  const share = (value, of) => `${((100 * value) / (of || 1)).toFixed(1)} %`;

  // Rows are [parent, place, microseconds, bytes], of two sides first the new side's, then the base's and
  // which of both differ clearly; a place is [text, library]. The root is the first.
  function treeOf({ places, rows, sides }, at, folds) {
    const nodes = rows.map((row, index) => {
      const [text, library] = places[row[1]];
      const isClear = sides.length > 0 && (row[6] & (at - 1)) > 0;
      return { text, library, own: row[at], base: sides.length ? row[at + 2] : 0, isClear, rows: [index], below: [] };
    });
    rows.forEach(([parent], index) => { if (parent >= 0) nodes[parent].below.push(nodes[index]); });
    const root = nodes[0];
    const take = (node, inner) => {
      node.own += inner.own;
      node.base += inner.base;
      node.rows.push(...inner.rows);
    };
    const folded = (node) => {
      const known = new Map();
      const add = (inner) => {
        if (node.library && inner.library === node.library) {
          take(node, inner);
          inner.below.forEach(add);
          return;
        }
        const key = inner.library ? `library ${inner.library}` : inner.text;
        const same = known.get(key);
        if (!same) { known.set(key, inner); return; }
        take(same, inner);
        same.isClear ||= inner.isClear;
        same.below.push(...inner.below);
      };
      node.below.forEach(add);
      node.below = [...known.values()];
      if (node.library) node.text = node.library;
      node.below.forEach(folded);
    };
    if (folds) folded(root);
    // The box of two sides is as wide as both together, so that what one of them lacks is seen as well.
    const whole = (node) => {
      node.total = node.own;
      node.total2 = node.base;
      for (const inner of node.below) { whole(inner); node.total += inner.total; node.total2 += inner.total2; }
      node.width = node.total + node.total2;
    };
    whole(root);
    return root;
  }

  for (const figure of document.querySelectorAll(".flame")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot"), reading = figure.querySelector(".reading");
    const by = figure.querySelector("select"), folds = figure.querySelector("[type=checkbox]");
    const search = figure.querySelector("[type=search]"), lines = figure.querySelector(".lines");
    const [base, side] = data.sides;
    let root, zoomed, path;

    const words = (node) => {
      const { text } = measures[by.value];
      if (side) {
        const more = node.total - node.total2;
        const change = node.isClear ? `${more < 0 ? "−" : "+"}${text(Math.abs(more))}` : "no clear difference";
        return `${node.text}: ${side} ${text(node.total)}, ${base} ${text(node.total2)}, ${change}`;
      }
      const own = node.own && node.below.length ? `, ${text(node.own)} of its own` : "";
      return `${node.text}: ${text(node.total)}, ${share(node.total, root.total)} of the run${own}`;
    };
    const looks = (node) => {
      if (side) return !node.isClear ? "same" : node.total > node.total2 ? "more" : "less";
      if (!node.library) return "own";
      return `l${[...node.library].reduce((sum, each) => sum + each.charCodeAt(0), 0) % 4}`;
    };

    function draw() {
      const wanted = search.value.toLowerCase(), found = { width: 0 };
      plot.replaceChildren();
      let deepest = 0;
      const place = (node, left, depth, isWithin) => {
        const width = node.width / zoomed.width;
        if (!(width >= SMALLEST) || depth > DEEPEST) return;  // nor of nothing, which is no number
        deepest = Math.max(deepest, depth);
        const isFound = wanted !== "" && node.text.toLowerCase().includes(wanted);
        if (isFound && !isWithin) found.width += node.width;
        const box = document.createElement("button");
        box.type = "button";
        box.textContent = width > 0.02 ? node.text : "";
        box.title = words(node);
        box.setAttribute("aria-label", words(node));
        box.tabIndex = depth === 0 ? 0 : -1;
        box.className = isFound ? "found" : looks(node);
        Object.assign(box.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${ROW * depth}px` });
        box.addEventListener("focus", () => { reading.textContent = words(node); });
        box.addEventListener("mouseenter", () => { reading.textContent = words(node); });
        box.addEventListener("click", () => zoom(node));
        Object.assign(box, { node, depth, left });
        plot.append(box);
        let at = left;
        for (const inner of [...node.below].sort((a, b) => b.width - a.width)) {
          place(inner, at, depth + 1, isWithin || isFound);
          at += inner.width / zoomed.width;
        }
      };
      place(zoomed, 0, 0, false);
      plot.style.height = `${ROW * (deepest + 1)}px`;
      if (wanted) reading.textContent = `${share(found.width, zoomed.width)} is at lines with “${search.value}”`;
      // The lines of all steps stand below, with more columns.
      lines.replaceChildren(...(zoomed === root || side ? [] : Object.values(measures).flatMap(table)));
    }

    // The lines of what is shown with the most of their own.
    function table({ at, text, title }) {
      const known = new Map();
      const add = (node) => {
        for (const index of node.rows) {
          const [, place, ...amounts] = data.rows[index];
          known.set(place, (known.get(place) ?? 0) + amounts[at - 2]);
        }
        node.below.forEach(add);
      };
      add(zoomed);
      const rows = [...known].filter(([, amount]) => amount > 0).sort((a, b) => b[1] - a[1]);
      if (!rows.length) return [];
      const whole = rows.reduce((sum, [, amount]) => sum + amount, 0);
      const made = document.createElement("table");
      made.createCaption().textContent = `${title}, ${zoomed.text}`;
      for (const [place, amount] of rows.slice(0, MOST)) {
        const row = made.insertRow(), name = document.createElement("th");
        Object.assign(name, { scope: "row", className: "t", textContent: data.places[place][0] });
        row.append(name);
        for (const shown of [text(amount), share(amount, whole)]) row.insertCell().textContent = shown;
      }
      const around = document.createElement("div");
      around.className = "scroll";
      around.append(made);
      return [around];
    }

    function zoom(node) {
      // What is shown whole is left by a second click: back to what it is in.
      if (node === zoomed) { path.pop(); zoomed = path.at(-1) ?? root; } else path.push(zoomed = node);
      draw();
      plot.firstElementChild?.focus();
    }

    function start() {
      root = treeOf(data, measures[by.value].at, folds.checked);
      zoomed = root;
      path = [root];
      draw();
      reading.textContent = words(root);
    }

    // A step in the table above: the link names its row.
    function open(row) {
      start();
      const find = (node) => (node.rows.includes(row) ? node : node.below.reduce((found, inner) => found ?? find(inner), undefined));
      const node = find(root);
      if (node?.width) zoom(node);
      figure.scrollIntoView({ block: "start" });
    }

    plot.addEventListener("keydown", (event) => {
      const from = document.activeElement, boxes = [...plot.children];
      const same = boxes.filter((box) => box.depth === from.depth);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      let to;
      if (step) to = same[same.indexOf(from) + step];
      else if (event.key === "ArrowDown") to = boxes.find((box) => from.node.below.includes(box.node));
      else if (event.key === "ArrowUp") to = boxes.find((box) => box.node.below.includes(from.node));
      else if (event.key === "Escape") { zoomed = root; path = [root]; draw(); to = plot.firstElementChild; } else return;
      event.preventDefault();
      to?.focus();
    });
    for (const link of document.querySelectorAll("a[href^='#lines-']")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        open(Number(link.hash.slice("#lines-".length)));
      });
    }
    by.addEventListener("change", start);
    folds.addEventListener("change", start);
    search.addEventListener("input", draw);
    figure.classList.add("live");
    start();
  }
})();
