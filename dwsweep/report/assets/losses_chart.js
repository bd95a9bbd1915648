/* Loss against size for every run: depths switched on and off, several axes, what a point is under the pointer or by
keys. The trend and the curves of each axis stand in the data. */

function lossesChart(root, { axes, points, depths, cells, level, unit }) {
  const state = { axis: axes[0], off: new Set(), trend: depths.length > 1, at: -1 };
  const box = el("div", { class: "drawing", id: "losses-drawing" });
  const readout = el("p", { class: "readout", role: "status", "aria-live": "polite" });
  const idle = "Point at a run, or focus the chart and use the arrow keys.";
  let placed = [], marker = null, drawn = null;
  const redraw = drawnIn(box, draw);
  const sizeOf = (point) => point[state.axis.column];
  const shownDepths = () => depths.filter((look) => !state.off.has(look.depth));
  const finished = () => points.filter((p) => p.loss !== null && sizeOf(p) > 0);
  const visible = () => finished().filter((p) => !state.off.has(p.depth));
  const trendAt = (size) => (state.trend ? state.axis.trend.reduceRight((sum, term) => sum * Math.log(size) + term, 0) : 0);

  /** The curve of a depth with its two ends, less the trend; points that are not known are left out. */
  function curveOf(look) {
    const curve = state.axis.curves[look.depth];
    return curve ? curve.x.map((size, k) => {
      const mean = curve.mean[k] - trendAt(size), half = curve.half ? curve.half[k] : 0;
      return { size, mean, low: mean - half, high: mean + half };
    }).filter((one) => one.size > 0 && Number.isFinite(one.mean)) : [];
  }

  function draw(width) {
    const every = finished(), shown = visible(), curves = shownDepths().map((look) => [look, curveOf(look)]);
    const rest = (p) => p.loss - trendAt(sizeOf(p));
    const sizes = every.map(sizeOf);
    const heights = [...(shown.length ? shown : every).map(rest), ...curves.flatMap(([, line]) => line.flatMap((one) => [one.low, one.high]))];
    const least = Math.min(...heights), most = Math.max(...heights), room = 0.04 * (most - least) || 0.01;
    drawn = plot({ width, height: Math.min(460, Math.max(300, width * 0.55)), logX: true,
      x: [Math.min(...sizes) / 1.15, Math.max(...sizes) * 1.15], y: [least - room, most + room], xLabel: state.axis.label,
      yLabel: `${state.trend ? "above the trend" : "held-out loss"} (${unit})`,
      label: `Held-out loss of ${shown.length} runs against size, a line per depth` });
    const { marks, x, y, root: drawing } = drawn;
    fill(drawing, { tabindex: "0", id: "losses-plot", keydown: keys, pointermove: point, pointerdown: point,
      pointerleave: () => select(null) }, []);
    placed = [];
    for (const [look, line] of curves) {
      const group = coloured(svg("g", {}), look);
      const through = (name) => line.map((one) => [x(one.size), y(one[name])]);
      if (line.length) {
        group.append(svg("path", { class: "band", d: lineThrough([...through("high"), ...through("low").reverse()]) }),
          svg("path", { class: "line", d: lineThrough(through("mean")) }));
      }
      for (const p of shown.filter((one) => one.depth === look.depth)) {
        const found = { run: p, look, px: x(sizeOf(p)), py: y(rest(p)) };
        placed.push(found);
        group.append(svg("circle", { class: "dot", cx: found.px.toFixed(1), cy: found.py.toFixed(1), r: 3 }));
      }
      marks.append(group);
    }
    placed.sort((a, b) => a.look.depth - b.look.depth || a.px - b.px || a.py - b.py);
    marker = svg("circle", { class: "marker", r: 7, visibility: "hidden" });
    marks.append(marker);
    box.replaceChildren(drawing);
    select(null);
  }

  function select(found) {
    state.at = placed.indexOf(found);
    if (marker) fill(marker, found ? { cx: found.px, cy: found.py, visibility: "visible" } : { visibility: "hidden" }, []);
    readout.textContent = found ? described(found.run) : idle;
  }

  function described(run) {
    const shape = `${run.depth} × ${run.width}`;
    const said = [`${run.run_id || `shape ${shape}`}: loss ${run.loss.toFixed(4)}`
      + (run.loss_stderr ? ` ± ${run.loss_stderr.toFixed(4)} (standard error over documents)` : "")];
    const cell = cells.find((one) => one.depth === run.depth && one.width === run.width);
    if (cell && cell.loss !== null) {
      said.push(`its shape ${shape}: mean ${cell.loss.toFixed(4)}`
        + (cell.half ? ` (${level}: ${(cell.loss - cell.half).toFixed(4)} to ${(cell.loss + cell.half).toFixed(4)})` : ""));
    }
    return `${[...said, `${formatCount(sizeOf(run))} ${state.axis.label}`].join("; ")}.`;
  }

  function point(event) { select(nearestPoint(placed, event, drawn.root, drawn.root.viewBox.baseVal.width)); }

  function keys(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") select(null);
    if (!step || !placed.length) return;
    event.preventDefault();
    select(placed[(state.at < 0 ? (step > 0 ? 0 : placed.length - 1) : state.at + step + placed.length) % placed.length]);
  }

  function toggle(look) {
    const input = el("input", { type: "checkbox", checked: true, change: () => {
      if (input.checked) state.off.delete(look.depth); else state.off.add(look.depth);
      redraw();
    } });
    return el("label", { class: "toggle" }, input, coloured(el("span", { class: "swatch", "aria-hidden": "true" }), look),
      `L = ${look.depth}`);
  }

  const COLUMNS = ["run_id", "depth", "width", "seed", "n_params", "n_params_total", "flops", "device_seconds", "loss", "loss_stderr"];
  const against = el("select", { id: "losses-axis", change: () => { state.axis = axes[against.selectedIndex]; redraw(); } },
    ...axes.map((axis) => el("option", {}, axis.label)));
  // losses fall by whole nats over a sweep while depths differ by hundredths: without the trend their order shows
  const trend = el("input", { type: "checkbox", id: "losses-trend", checked: state.trend, change: () => { state.trend = trend.checked; redraw(); } });
  root.replaceChildren(
    el("div", { class: "controls" },
      axes.length > 1 ? el("label", { for: "losses-axis" }, "Against ", against) : null,
      el("label", { class: "toggle" }, trend, "less the trend common to all")),
    el("div", { class: "controls", role: "group", "aria-label": "Depths shown" }, ...depths.map(toggle)),
    box, readout,
    el("p", { class: "buttons" }, button("Chart as SVG", () => saveSvg("losses.svg", box.querySelector("svg"))),
      button("Runs shown as CSV", () => saveCsv("losses.csv", [COLUMNS, ...visible().map((run) => COLUMNS.map((name) => run[name]))]))));
  redraw();
}
