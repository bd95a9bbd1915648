/* What the script adds to the page. Everything that it shows beyond this stands in the page without it too. */

const data = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("scripted");
const [answersRoot, chartRoot] = ["answers-box", "losses-chart"].map((id) => document.getElementById(id));
if (answersRoot) answersBox(answersRoot, data.guide);
if (chartRoot) lossesChart(chartRoot, data);
const fold = document.querySelector("details.all-runs");
if (fold) runsTable(fold, data);
