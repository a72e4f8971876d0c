"use strict";
// Makes the tables of a page sortable: up, down, and back to the order in which they came.
(() => {
  const powers = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };

  // Of "1,024", "≥ 93.8 %", "x 1.33" or "1.62 GB"; undefined where there is none.
  function number(text) {
    const plain = text.replace(/,/g, "").replace("−", "-");
    const found = plain.match(/^[x≥+ ]*(-?[\d.]+(?:e[-+]?\d+)?)(?: ([kKMGTP]))?/);
    return found ? Number(found[1]) * (powers[found[2]] ?? 1) : undefined;
  }

  function value(row, column, isText) {
    const text = row.cells[column]?.textContent ?? "";
    return isText ? text || undefined : number(text);
  }

  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const isText = table.tHead.rows[0].cells[column].classList.contains("t");
    const rows = [...body.rows].sort((a, b) => a.dataset.order - b.dataset.order);
    if (direction) {
      const sign = direction === "ascending" ? 1 : -1;
      rows.sort((a, b) => {
        const one = value(a, column, isText), other = value(b, column, isText);
        if (one === undefined || other === undefined) {
          return (one === undefined) - (other === undefined);  // unknown ones last
        }
        return sign * (isText ? one.localeCompare(other) : one - other);
      });
    }
    body.append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tBodies[0].rows].forEach((row, order) => { row.dataset.order = order; });
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      // Numbers begin with the largest: that is what is looked for.
      const first = heading.classList.contains("t") ? "ascending" : "descending";
      const second = first === "ascending" ? "descending" : "ascending";
      button.addEventListener("click", () => {
        const now = heading.getAttribute("aria-sort");
        const next = now === null ? first : now === first ? second : null;
        for (const other of headings) other.removeAttribute("aria-sort");
        if (next) heading.setAttribute("aria-sort", next);
        sort(table, column, next);
      });
    });
  }
})();
