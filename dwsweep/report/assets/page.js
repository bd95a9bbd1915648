(() => {
"use strict";
/* The table of all runs, sorted by its headings and filtered; a link unfolds its section. Everything stands in the page
without this script too. */

/** 1.3e9, 60k, 125M or 3B as a number; NaN for anything else. */
function parseCount(text) {
  const found = /^([+-]?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?)([KMBT]?)$/.exec(text);
  return found ? Number(found[1].replaceAll(",", "")) * 1000 ** " KMBT".indexOf(found[2] || " ") : NaN;
}

function runsTable(table) {
  const heads = [...table.tHead.rows[0].cells], columns = heads.map((cell) => cell.textContent), body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, cells: [...row.cells].map((cell) => cell.textContent) }));
  const controls = document.createElement("p"), filter = document.createElement("input"), count = document.createElement("span");
  Object.assign(filter, { type: "search", className: "runs-filter", placeholder: "L12 done" });
  filter.setAttribute("aria-label", "Rows that hold every word");
  Object.assign(count, { className: "runs-shown soft", role: "status" });
  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { row, cells } of rows) row.hidden = !words.every((word) => cells.join(" ").toLowerCase().includes(word));
    count.textContent = `${rows.filter(({ row }) => !row.hidden).length} of ${rows.length} runs`;
  };
  filter.addEventListener("input", show);
  controls.append(filter, " ", count);
  table.parentElement.before(controls);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = columns[column];
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const missing = ({ cells }) => cells[column] === "";
      rows.sort((a, b) => {
        if (missing(a) || missing(b)) return missing(a) - missing(b); // last in either order
        const [u, v] = [a.cells[column], b.cells[column]], difference = parseCount(u) - parseCount(v);
        return sign * (Number.isNaN(difference) ? u.localeCompare(v, "en", { numeric: true }) : difference);
      });
      body.append(...rows.map(({ row }) => row));
    });
    head.replaceChildren(button);
  });
  show();
}

for (const table of document.querySelectorAll(".all-runs table")) runsTable(table);

const unfold = () => {
  const first = document.getElementById(location.hash.slice(1))?.firstElementChild;
  if (first?.tagName === "DETAILS") first.open = true;
};
addEventListener("hashchange", unfold);
unfold();
})();
