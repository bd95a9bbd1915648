/* What the script adds to the page. Everything that it shows beyond this stands in the page without it too. */

/** Rows of columns; a column is a list, or {of: values, at: place of each row's value}. */
function rowsOf(columns) {
  const named = Object.entries(columns).map(([name, one]) => [name, one.of ? one.at.map((place) => one.of[place]) : one]);
  return named.length ? named[0][1].map((_, k) => Object.fromEntries(named.map(([name, values]) => [name, values[k]]))) : [];
}

/** A table in a box that scrolls, as those that stand in the page. */
function tableOf({ heads, texts, columns }) {
  const row = (tag, cells) => el("tr", {}, ...cells.map((text, k) => el(tag, texts[k] ? { class: "text" } : {}, text)));
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, row("th", heads)),
    el("tbody", {}, ...rowsOf(columns).map((one) => row("td", heads.map((_, k) => one[k]))))));
}

const data = JSON.parse(document.getElementById("data").textContent);
if (data.table) data.losses.runs.id = data.table.columns[0];
data.losses.runs = rowsOf(data.losses.runs);
document.documentElement.classList.add("scripted");
const [answersRoot, chartRoot] = ["answers-box", "losses-chart"].map((id) => document.getElementById(id));
if (answersRoot) answersBox(answersRoot, data.guide);
if (chartRoot) lossesChart(chartRoot, data);
const fold = document.querySelector("details.all-runs");
if (fold && data.table) fold.lastElementChild.replaceWith(tableOf(data.table));
if (fold) runsTable(fold, data);
