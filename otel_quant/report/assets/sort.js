"use strict";
// Makes the tables of a page sortable: up, down, and back to the order in which they came.
(() => {
  const number = (text) => Number(text.replace(/[,+%≥ ]/g, "").replace("−", "-"));

  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const isText = table.tHead.rows[0].cells[column].classList.contains("t");
    const rows = [...body.rows].sort((a, b) => a.dataset.order - b.dataset.order);
    if (direction) {
      const sign = direction === "ascending" ? 1 : -1;
      rows.sort((a, b) => {
        const one = a.cells[column].textContent, other = b.cells[column].textContent;
        if (one === "" || other === "") return (one === "") - (other === "");  // unknown ones last
        return sign * (isText ? one.localeCompare(other) : number(one) - number(other));
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
