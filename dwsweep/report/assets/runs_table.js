/* The table of all runs, which stands in the page already: sorted by its headings, filtered, each run with its curve. */

function runsTable(fold, data) {
  const table = fold.querySelector("table"), body = table.tBodies[0];
  const rows = [...body.rows].map((row, k) => ({ row, run: data.runs[k],
    text: [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase() }));
  const count = el("span", { class: "soft", role: "status", "aria-live": "polite", id: "runs-shown" });
  const filter = el("input", { type: "search", id: "runs-filter", placeholder: "loss<3.3 depth>=12 done", input: show });
  const curve = el("div", { class: "drawing", id: "run-curve", hidden: true });
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  let chosen = null;
  const redraw = drawnIn(curve, draw);

  // ---- order and filter ----

  function keyOf(one, column) {
    const name = data.columns[column], value = one.run[name];
    return value === undefined ? one.row.cells[column].textContent : value;
  }

  function sortBy(column, heading) {
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const sign = rising ? 1 : -1;
    rows.sort((a, b) => {
      const [u, v] = [keyOf(a, column), keyOf(b, column)];
      // what is not there comes last in either order
      if (u === null || v === null) return (u === null) - (v === null);
      const order = typeof u === "number" && typeof v === "number" ? u - v : String(u).localeCompare(String(v), "en", { numeric: true });
      return sign * order;
    });
    body.append(...rows.map((one) => one.row));
  }

  function show() {
    const { keeps, wrong } = runsFilter(filter.value, headings);
    let left = 0;
    for (const one of rows) {
      one.row.hidden = !keeps(one.text, (column) => ({ value: one.run[data.columns[column]], text: one.row.cells[column].textContent }));
      left += !one.row.hidden;
    }
    filter.setAttribute("aria-invalid", String(wrong !== ""));
    count.textContent = wrong || `${left} of ${rows.length} runs`;
  }

  // ---- the curve of a run ----

  function choose(one) {
    if (chosen) chosen.row.classList.remove("chosen");
    chosen = one;
    one.row.classList.add("chosen");
    curve.hidden = false;
    redraw();
    curve.scrollIntoView({ block: "nearest" });
  }

  function draw(width) {
    if (!chosen) return;
    const trained = data.training.curves[chosen.run.run_id];
    const title = el("p", { id: "run-curve-title", role: "status" }, el("strong", {}, chosen.run.run_id),
      trained ? ": training loss against step." : ": its training curve is not on this page.");
    if (!trained) {
      curve.replaceChildren(title);
      return;
    }
    const steps = data.training.steps[trained[0]], losses = trained[1];
    const least = Math.min(...losses), most = Math.max(...losses), room = 0.05 * (most - least) || 0.05;
    const drawing = plot({ width, height: 260, logX: true, x: [steps[0] / 1.05, Math.max(steps[steps.length - 1], steps[0] * 2) * 1.05],
      y: [least - room, most + room], xLabel: "optimizer step", yLabel: "training loss (nats)",
      label: `Training loss of ${chosen.run.run_id}, from ${losses[0].toFixed(2)} to ${losses[losses.length - 1].toFixed(2)} nats` });
    const line = svg("path", { class: "line", d: lineThrough(steps.map((step, k) => [drawing.x(step), drawing.y(losses[k])])) });
    const look = data.losses && data.losses.depths.find((one) => one.depth === chosen.run.depth);
    drawing.marks.append(look ? coloured(svg("g", {}, line), look) : line);
    curve.replaceChildren(title, drawing.root,
      el("p", { class: "buttons" }, button("Curve as SVG", () => saveSvg("run.svg", drawing.root)),
        button("Curve as CSV", () => saveCsv("run.csv", [["step", "loss"], ...steps.map((step, k) => [step, losses[k]])]))));
  }

  // ---- in place ----

  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const label = heading.textContent;
    heading.replaceChildren(button(label, () => sortBy(column, heading), { class: "sort" }));
  });
  for (const one of rows) {
    const cell = one.row.cells[0];
    cell.replaceChildren(button(cell.textContent, () => choose(one), { class: "run", title: "its training curve" }));
  }
  table.parentElement.before(
    el("div", { class: "controls" }, el("label", { for: "runs-filter" }, "Filter ", filter), count,
      button("Table as CSV", () => saveCsv("runs.csv", [
        headings,
        ...rows.filter((one) => !one.row.hidden).map((one) => [...one.row.cells].map((cell) => cell.textContent))]))));
  table.parentElement.before(el("p", { class: "soft" }, FILTER_HINT));
  table.parentElement.after(curve);
  fold.open = true;
  show();
}
