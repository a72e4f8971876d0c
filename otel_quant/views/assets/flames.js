"use strict";
// Draws the lines of code of steps as an icicle: callers above what they call, wide where they took much.
(() => {
  const SMALLEST = 0.003, ROW = 20, DEEPEST = 60;
  const rounded = (value) => (value < 100 ? value.toPrecision(3) : value.toFixed());
  const size = (value) => {
    const power = value >= 1e9 ? 2 : value >= 1e6 ? 1 : 0;
    return `${rounded(value / 1000 ** (power + 1))} ${["kB", "MB", "GB"][power]}`;
  };
  const measures = {
    time: { at: 2, text: (value) => `${rounded(value / 1e6)} s` },
    "memory growth": { at: 3, text: size },
  };

  // Rows are [parent, place, microseconds, bytes]; a place is [text, library]. The root is the first.
  function treeOf({ places, rows }, at, folds) {
    const nodes = rows.map(([, place, ...amounts]) => {
      const [text, library] = places[place];
      return { text, library, own: amounts[at - 2], below: [] };
    });
    rows.forEach(([parent], index) => { if (parent >= 0) nodes[parent].below.push(nodes[index]); });
    const whole = (node) => {
      node.total = node.own + node.below.reduce((sum, inner) => sum + whole(inner), 0);
      return node.total;
    };
    const folded = (node) => {
      const known = new Map();
      const add = (inner) => {
        if (node.library && inner.library === node.library) {
          node.own += inner.own;
          inner.below.forEach(add);
          return;
        }
        const key = inner.library ? `library ${inner.library}` : inner.text;
        const same = known.get(key);
        if (same) { same.own += inner.own; same.below.push(...inner.below); } else known.set(key, inner);
      };
      node.below.forEach(add);
      node.below = [...known.values()];
      if (node.library) node.text = node.library;
      node.below.forEach(folded);
    };
    if (folds) folded(nodes[0]);
    whole(nodes[0]);
    return nodes[0];
  }

  for (const figure of document.querySelectorAll(".flame")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot"), said = figure.querySelector(".reading");
    const by = figure.querySelector("select"), folds = figure.querySelector("[type=checkbox]");
    const search = figure.querySelector("[type=search]");
    let root, zoomed, path;

    const share = (value, of) => `${((100 * value) / (of || 1)).toFixed(1)} %`;
    const words = (node) => {
      const { text } = measures[by.value];
      const own = node.own && node.below.length ? `, ${text(node.own)} of its own` : "";
      return `${node.text}: ${text(node.total)}, ${share(node.total, root.total)} of all${own}`;
    };

    function draw() {
      const wanted = search.value.toLowerCase(), found = { total: 0 };
      plot.replaceChildren();
      let deepest = 0;
      const place = (node, left, depth, isWithin) => {
        const width = node.total / zoomed.total;
        if (!(width >= SMALLEST) || depth > DEEPEST) return;  // nor of nothing, which is no number
        deepest = Math.max(deepest, depth);
        const isFound = wanted !== "" && node.text.toLowerCase().includes(wanted);
        if (isFound && !isWithin) found.total += node.total;
        const box = document.createElement("button");
        box.type = "button";
        box.textContent = width > 0.02 ? node.text : "";
        box.title = words(node);
        box.setAttribute("aria-label", words(node));
        box.tabIndex = depth === 0 ? 0 : -1;
        box.className = isFound ? "found" : node.library ? `l${[...node.library].reduce((sum, each) => sum + each.charCodeAt(0), 0) % 4}` : "own";
        Object.assign(box.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${ROW * depth}px` });
        box.addEventListener("focus", () => { said.textContent = words(node); });
        box.addEventListener("mouseenter", () => { said.textContent = words(node); });
        box.addEventListener("click", () => zoom(node));
        Object.assign(box, { node, depth, left });
        plot.append(box);
        let at = left;
        for (const inner of [...node.below].sort((a, b) => b.total - a.total)) {
          place(inner, at, depth + 1, isWithin || isFound);
          at += inner.total / zoomed.total;
        }
      };
      place(zoomed, 0, 0, false);
      plot.style.height = `${ROW * (deepest + 1)}px`;
      if (wanted) said.textContent = `${share(found.total, zoomed.total)} is at lines with “${search.value}”`;
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
      said.textContent = words(root);
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
    by.addEventListener("change", start);
    folds.addEventListener("change", start);
    search.addEventListener("input", draw);
    figure.classList.add("live");
    start();
  }
})();
