/* What the script adds to the page. Everything that it shows beyond this stands in the page without it too. */

const data = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("scripted");
budgetBox(document.getElementById("budget-box"), data.guide);
lossesChart(document.getElementById("losses-chart"), data);
const fold = document.querySelector("details.all-runs");
if (fold) runsTable(fold, data);
