(() => {
"use strict";
/* The table of all runs, sorted by its headings and filtered; a link unfolds its section; boxes that scroll say so; paper
shows all of the page.
Everything stands in the page without this script too. */

/** 1.3e9, 60k, 125M, 3B (or 3G), 1T as a number; NaN for anything else. */
function parseCount(text) {
  const found = /^\s*([+-]?(?:[0-9][0-9_.,]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)\s*$/i.exec(text);
  const power = { "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 };
  return found ? Number(found[1].replace(/[_,]/g, "")) * power[found[2].toLowerCase()] : NaN;
}

const SIGNS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b };

/** What to keep: words that a row must hold, and comparisons of a column with a number; or why it cannot be read. */
function filterOf(typed, columns) {
  const tests = [], plain = (name) => name.toLowerCase().replace(/[ _]/g, "");
  // the longest name first, so that a name that ends another is not taken for it
  const names = [...columns].sort((a, b) => b.length - a.length).map((name) => name.replace(/[^\w ]/g, "\\$&").replace(/ /g, "[ _]?"));
  const comparison = new RegExp(`(^|\\s)(${names.join("|")}|[^\\s<>=]+)\\s*(<=|>=|<|>|=)\\s*([^\\s<>=]*)(?=\\s|$)`, "gi");
  let wrong = "";
  const words = typed.replace(comparison, (whole, before, name, sign, right) => {
    const number = parseCount(right), column = columns.findIndex((one) => plain(one) === plain(name));
    if (column < 0) wrong = `There is no column "${name}"; the columns are ${columns.join(", ")}.`;
    else if (Number.isNaN(number)) wrong = `${columns[column]}${sign}${right}: compare with a number, such as ${columns[column]}${sign}3.3.`;
    tests.push((cells) => SIGNS[sign](parseCount(cells[column]), number));
    return " ";
  }).toLowerCase().split(/\s+/).filter(Boolean);
  return { wrong, keeps: (cells) => !wrong && words.every((word) => cells.join(" ").toLowerCase().includes(word)) && tests.every((test) => test(cells)) };
}

function runsTable(table) {
  const heads = [...table.tHead.rows[0].cells], columns = heads.map((cell) => cell.textContent), body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, cells: [...row.cells].map((cell) => cell.textContent) }));
  const controls = document.createElement("p"), filter = document.createElement("input"), count = document.createElement("span");
  Object.assign(filter, { type: "search", className: "runs-filter", placeholder: "loss<3.3 depth>=12 done" });
  filter.setAttribute("aria-label", "Rows that hold every word and meet every comparison, such as loss<3.3 or N>=1.2M");
  Object.assign(count, { className: "runs-shown soft", role: "status" });
  const show = () => {
    const { wrong, keeps } = filterOf(filter.value, columns);
    for (const { row, cells } of rows) row.hidden = !keeps(cells);
    filter.setAttribute("aria-invalid", String(wrong !== ""));
    count.textContent = wrong || `${rows.filter(({ row }) => !row.hidden).length} of ${rows.length} runs`;
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
      const missing = ({ cells }) => cells[column] === "–";
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

const sized = new ResizeObserver((boxes) => {
  for (const { target } of boxes) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
});
for (const box of document.querySelectorAll(".scroll")) sized.observe(box);

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
})();
