/* What the script adds to the page. Everything that it shows beyond this stands in the page without it too. */

/** Rows of columns; a column is a list, or {of: values, at: place of each row's value}. */
function rowsOf(columns) {
  const named = Object.entries(columns).map(([name, one]) => [name, one.of ? one.at.map((place) => one.of[place]) : one]);
  return named.length ? named[0][1].map((_, k) => Object.fromEntries(named.map(([name, values]) => [name, values[k]]))) : [];
}

const data = JSON.parse(document.getElementById("data").textContent);
data.runs = rowsOf(data.runs);
document.documentElement.classList.add("scripted");
if (data.guide) answersBox(document.getElementById("budget"), data.guide);
if (data.losses) lossesChart(document.getElementById("losses-chart"), { ...data.losses, points: data.losses.points ? rowsOf(data.losses.points) : data.runs });
const fold = document.querySelector("details.all-runs");
if (fold) runsTable(fold, data);

// paper shows all of the page
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
