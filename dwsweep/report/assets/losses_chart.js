/* Loss against size for every run: depths switched on and off, four axes, what a point is under the pointer or by keys. */

const AXES = {
  n: "non-embedding parameters N", total: "all parameters", flops: "training FLOPs", seconds: "device-seconds of the run",
};

function lossesChart(root, data) {
  const { runs, depths, cells } = data.losses;
  const axes = Object.keys(AXES).filter((key) => runs.some((run) => run[key] > 0 && run.loss !== null));
  const points = runs.length ? runs : cells;
  const state = { axis: axes.includes("n") || !axes.length ? "n" : axes[0], off: new Set(), trend: depths.length > 1, at: -1 };
  const box = el("div", { class: "drawing", id: "losses-drawing" });
  const readout = el("p", { class: "readout", role: "status", "aria-live": "polite" });
  const idle = "Point at a run, or focus the chart and use the arrow keys.";
  let placed = [], marker = null, drawn = null;
  const redraw = drawnIn(box, draw);

  // ---- where things lie ----

  /** The axis of the fit as the chosen one, along the shapes of a depth: straight between them in logarithms. */
  function translated(depth) {
    const pairs = new Map();
    for (const run of runs) {
      if (run.depth === depth && run.fitted > 0 && run[state.axis] > 0) {
        pairs.set(run.fitted, [...(pairs.get(run.fitted) || []), Math.log(run[state.axis])]);
      }
    }
    const known = [...pairs].map(([from, to]) => [Math.log(from), to.reduce((a, b) => a + b) / to.length])
      .sort((a, b) => a[0] - b[0]);
    if (!known.length) return (value) => (axes.length ? NaN : value);
    return (value) => {
      const at = Math.log(value);
      if (known.length === 1) return Math.abs(at - known[0][0]) < 1e-6 ? Math.exp(known[0][1]) : NaN;
      let k = 0;
      while (k < known.length - 2 && known[k + 1][0] < at) k++;
      const [[a, u], [b, v]] = [known[k], known[k + 1]];
      return Math.exp(u + (v - u) * (at - a) / (b - a));
    };
  }

  function sizeOf(point) { return runs.length ? point[state.axis] : point.fitted; }

  /** What all depths have in common: a parabola in ln x through the points shown. */
  function trendThrough(shown) {
    const at = shown.map((p) => Math.log(sizeOf(p))), middle = at.reduce((a, b) => a + b, 0) / (at.length || 1);
    const sums = Array(5).fill(0), right = Array(3).fill(0);
    at.forEach((x, k) => {
      for (let j = 0; j < 5; j++) sums[j] += (x - middle) ** j;
      for (let j = 0; j < 3; j++) right[j] += shown[k].loss * (x - middle) ** j;
    });
    const degree = new Set(at.map((x) => x.toFixed(3))).size > 3 ? 3 : 1;
    const rows = Array.from({ length: degree }, (_, i) => [...Array.from({ length: degree }, (_, j) => sums[i + j]), right[i]]);
    for (let i = 0; i < degree; i++) {
      let pivot = i;
      for (let j = i + 1; j < degree; j++) if (Math.abs(rows[j][i]) > Math.abs(rows[pivot][i])) pivot = j;
      [rows[i], rows[pivot]] = [rows[pivot], rows[i]];
      for (let j = 0; j < degree; j++) {
        if (j !== i) {
          const share = rows[j][i] / rows[i][i];
          rows[j] = rows[j].map((value, k) => value - share * rows[i][k]);
        }
      }
    }
    const terms = rows.map((row, i) => row[degree] / row[i]);
    return (size) => terms.reduce((sum, term, j) => sum + term * (Math.log(size) - middle) ** j, 0);
  }

  function visible() {
    return points.filter((p) => !state.off.has(p.depth) && p.loss !== null && sizeOf(p) > 0);
  }

  // ---- drawing ----

  function draw(width) {
    const every = points.filter((p) => p.loss !== null && sizeOf(p) > 0), shown = visible();
    const trend = state.trend && every.length > 3 ? trendThrough(every) : () => 0;
    const rest = (p) => p.loss - trend(sizeOf(p));
    const sizes = every.map(sizeOf), heights = (shown.length ? shown : every).map(rest);
    if (!sizes.length) {
      box.replaceChildren(el("p", { class: "soft" }, "No finished run: there is no loss to draw."));
      return;
    }
    const least = Math.min(...heights), most = Math.max(...heights), room = 0.06 * (most - least) || 0.01;
    drawn = plot({ width, height: Math.min(460, Math.max(300, width * 0.55)), logX: true,
      x: [Math.min(...sizes) / 1.15, Math.max(...sizes) * 1.15], y: [least - room, most + room],
      xLabel: runs.length ? AXES[state.axis] : data.losses.axis_label,
      yLabel: state.trend ? "nats above the trend" : "held-out loss (nats)",
      label: `Held-out loss of ${shown.length} runs against size, a line per depth` });
    const { marks, x, y, root: drawing } = drawn;
    fill(drawing, { tabindex: "0", id: "losses-plot", keydown: keys, pointermove: point, pointerdown: point,
      pointerleave: () => select(null) }, []);
    placed = [];
    for (const look of depths) {
      if (state.off.has(look.depth)) continue;
      const group = coloured(svg("g", {}), look), moved = translated(look.depth);
      if (look.curve) {
        const at = look.curve.x.map(moved);
        const side = (sign) => at.map((v, k) => [x(v), y(look.curve.mean[k] + sign * look.curve.half[k] - trend(v))]);
        if (look.curve.half) {
          const up = side(1), down = side(-1).reverse();
          group.append(svg("path", { class: "band", d: lineThrough([...up, ...down]) }));
        }
        group.append(svg("path", { class: "line", d: lineThrough(at.map((v, k) => [x(v), y(look.curve.mean[k] - trend(v))])) }));
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
    const pm = (value) => `± ${value.toFixed(4)}`;
    const said = [`${run.id || `shape ${labelOf(run)}`}: loss ${run.loss.toFixed(4)}`
      + (run.stderr ? ` ${pm(run.stderr)} (standard error over documents)` : "")];
    const cell = cells.find((one) => one.depth === run.depth && one.width === run.width);
    if (cell && cell.loss !== null) {
      said.push(`its shape ${labelOf(run)}: mean ${cell.loss.toFixed(4)}`
        + (cell.half ? ` (${data.losses.level}: ${(cell.loss - cell.half).toFixed(4)} to ${(cell.loss + cell.half).toFixed(4)})` : ""));
    }
    const size = sizeOf(run);
    if (size) said.push(`${formatCount(size)} ${runs.length ? AXES[state.axis] : data.losses.axis_label}`);
    return `${said.join("; ")}.`;
  }

  function point(event) { select(nearestPoint(placed, event, drawn.root, drawn.root.viewBox.baseVal.width)); }

  function keys(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") select(null);
    if (!step || !placed.length) return;
    event.preventDefault();
    select(placed[(state.at < 0 ? (step > 0 ? 0 : placed.length - 1) : state.at + step + placed.length) % placed.length]);
  }

  // ---- controls ----

  function toggle(look) {
    const input = el("input", { type: "checkbox", checked: true, change: () => {
      if (input.checked) state.off.delete(look.depth); else state.off.add(look.depth);
      redraw();
    } });
    return el("label", { class: "toggle" }, input, coloured(el("span", { class: "swatch", "aria-hidden": "true" }), look),
      `L = ${look.depth}`);
  }

  function csvRows() {
    const head = ["run_id", "depth", "width", "seed", "n_params", "n_params_total", "flops", "device_seconds", "loss", "loss_stderr"];
    return [head, ...visible().map((r) => [r.id, r.depth, r.width, r.seed, r.n, r.total, r.flops, r.seconds, r.loss, r.stderr])];
  }

  const select_axis = el("select", { id: "losses-axis", change: () => { state.axis = select_axis.value; redraw(); } },
    ...axes.map((key) => el("option", { value: key }, AXES[key])));
  // losses fall by whole nats over a sweep while depths differ by hundredths: without the trend their order shows
  const trend = el("input", { type: "checkbox", id: "losses-trend", checked: state.trend, change: () => { state.trend = trend.checked; redraw(); } });
  root.replaceChildren(
    el("div", { class: "controls" },
      axes.length > 1 ? el("label", { for: "losses-axis" }, "Against ", select_axis) : null,
      el("label", { class: "toggle" }, trend, "less the trend common to all")),
    el("div", { class: "controls", role: "group", "aria-label": "Depths shown" }, ...depths.map(toggle)),
    box, readout,
    el("p", { class: "buttons" }, button("Chart as SVG", () => saveSvg("losses.svg", box.querySelector("svg"))),
      button("Runs shown as CSV", () => saveCsv("losses.csv", csvRows()))));
  redraw();
}
