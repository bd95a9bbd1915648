/* What the script adds to the page. Everything that it shows beyond this stands in the page without it too. */

/** Rows of columns; a column is a list, or {of: values, at: place of each row's value}. */
function rowsOf(columns) {
  const named = Object.entries(columns).map(([name, one]) => [name, one.of ? one.at.map((place) => one.of[place]) : one]);
  return named.length ? named[0][1].map((_, k) => Object.fromEntries(named.map(([name, values]) => [name, values[k]]))) : [];
}

const data = JSON.parse(document.getElementById("data").textContent);
data.losses.runs = rowsOf(data.losses.runs);
document.documentElement.classList.add("scripted");
const [answersRoot, chartRoot] = ["answers-box", "losses-chart"].map((id) => document.getElementById(id));
if (answersRoot) answersBox(answersRoot, data.guide);
if (chartRoot) lossesChart(chartRoot, data);
const fold = document.querySelector("details.all-runs");
if (fold) runsTable(fold, data);
