/* Axes, ticks and marks as SVG. Colours come from the style sheet, so that a drawing follows the theme and the printer. */

/** Round places on a log axis, at most about `most` of them. */
function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const choices = [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]];
  for (let step = 1; step < 20; step++) {
    for (const digits of step === 1 ? choices : [[1]]) {
      const found = [];
      for (let k = first; k <= last; k += step) for (const d of digits) found.push(d * 10 ** k);
      const inside = found.map((value) => Number(value.toPrecision(6))).filter((v) => low <= v && v <= high);
      if (inside.length <= most) return inside;
    }
  }
  return [low, high];
}

function linearTicks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((value) => value >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return { places: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

let clips = 0;

/** An empty plot: {root, marks, x, y}; x and y turn values into places, marks is the group inside the axes.

label: what the drawing shows, for who does not see it. */
function plot({ width, height, x, y, logX, xLabel, yLabel, label, xFormat }) {
  const left = 58, right = width - 12, top = 12, bottom = height - 46, clip = `clip-${++clips}`;
  const across = logX ? Math.log : (v) => v;
  const [x0, x1] = x.map(across), [y0, y1] = y;
  const toX = (value) => left + (across(value) - x0) / (x1 - x0) * (right - left);
  const toY = (value) => bottom - (value - y0) / (y1 - y0) * (bottom - top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": label });
  const grid = svg("g", { "aria-hidden": "true" });
  const most = Math.max(3, Math.floor((right - left) / 80));
  for (const value of logX ? logTicks(...x, most) : linearTicks(...x, most).places) {
    grid.append(svg("line", { class: "grid", x1: toX(value), x2: toX(value), y1: top, y2: bottom }),
      svg("text", { class: "tick", x: toX(value), y: bottom + 17, "text-anchor": "middle" }, (xFormat || formatCount)(value)));
  }
  const { places, digits } = linearTicks(...y, 6);
  for (const value of places) {
    grid.append(svg("line", { class: "grid", x1: left, x2: right, y1: toY(value), y2: toY(value) }),
      svg("text", { class: "tick", x: left - 7, y: toY(value) + 4, "text-anchor": "end" },
        value.toFixed(digits).replace("-", "−")));
  }
  grid.append(svg("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }),
    svg("text", { class: "label", x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, xLabel),
    svg("text", { class: "label", "text-anchor": "middle", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)` },
      yLabel));
  const marks = svg("g", { "clip-path": `url(#${clip})` });
  root.append(svg("defs", {}, svg("clipPath", { id: clip },
    svg("rect", { x: left, y: top - 6, width: right - left + 6, height: bottom - top + 6 }))), grid, marks);
  return { root, marks, x: toX, y: toY, frame: { left, right, top, bottom } };
}

/** A path through points; a point that is not finite breaks it. */
function lineThrough(points) {
  let d = "", up = true;
  for (const [x, y] of points) {
    if (Number.isFinite(x) && Number.isFinite(y)) {
      d += `${up ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
      up = false;
    } else up = true;
  }
  return d;
}

/** The colour of a depth in either theme, for the marks inside. */
function coloured(node, look) {
  node.classList.add("by-depth");
  node.style.setProperty("--on-light", look.on_light);
  node.style.setProperty("--on-dark", look.on_dark);
  return node;
}

/** The point nearest to the pointer, within reach of a finger; null without one. */
function nearestPoint(points, event, root, width) {
  const box = root.getBoundingClientRect(), scale = width / box.width;
  const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  let best = null, least = 26;
  points.forEach((point) => {
    const far = Math.hypot(point.px - x, point.py - y);
    if (far < least) [best, least] = [point, far];
  });
  return best;
}
