/* The box of answers: of the answers that stand in the page the one nearest to the size asked for is shown; between two
listed sizes their numbers are interpolated, straight in logarithms. */

function answersBox(section, { sizes, spoken, command }) {
  const [typed, slider, at] = ["#ask-params", "#ask-slider", "#ask-at"].map((id) => section.querySelector(id));
  const [wrong, between, line] = [".wrong", "#between", "#guide-command"].map((id) => section.querySelector(id));
  const last = sizes.length - 1;

  /** Of u and v the mean by weight in logarithms; null where either is not known. */
  const mix = (u, v, t) => (u > 0 && v > 0 ? Math.exp((1 - t) * Math.log(u) + t * Math.log(v)) : null);
  const one = (value) => value.toFixed(value < 99.95 ? 1 : 0);
  const ends = (low, high) => (low && high ? `${one(low)} … ${one(high)}` : low ? `> ${one(low)}` : high ? `< ${one(high)}` : "no bound");

  function interpolated(n, a, b) {
    const t = Math.log(n / a.n) / Math.log(b.n / a.n), where = `between the answers at ${a.label} and ${b.label}`;
    const said = [];
    if (a.depth && b.depth) {
      const [depth, low, high] = a.depth.map((value, k) => mix(value, b.depth[k], t));
      if (depth) said.push(`best depth about ${one(depth)} (${ends(low, high)})`);
    }
    if (a.range && b.range) {
      const [low, high] = a.range.map((value, k) => mix(value, b.range[k], t));
      said.push(`depths ${low ? Math.ceil(low) : 1} to ${high ? Math.floor(high) : "all depths of the data"} waste at most ${a.range[2]} % of compute`);
    }
    const [u, v] = [a, b].map((point) => point.build && point.build[at.value]);
    if (u && v) {
      const depth = Math.max(1, Math.round(mix(u[0], v[0], t)));
      // N / (L·d²), which heads and the MLP of the shapes decide
      const width = Math.sqrt(n / depth / mix(a.n / u[0] / u[1] ** 2, b.n / v[0] / v[1] ** 2, t));
      said.push(`best at ${spoken[at.value]} about ${depth} × ${Math.round(width)}`
        + (u[2] !== null && v[2] !== null ? `, which wastes ${((1 - t) * u[2] + t * v[2]).toFixed(1)} % of compute in expectation` : ""));
    }
    return said.length ? `${where}, ${said.join("; ")}.` : `${where}, one of which names no shape.`;
  }

  function update(n, text) {
    const right = n > 0, far = sizes.map((point) => Math.abs(Math.log(point.n / n)));
    wrong.hidden = right;
    wrong.textContent = right ? "" : "A size is a positive number, such as 3e9, 60k, 125M, 3B or 1T.";
    typed.setAttribute("aria-invalid", String(!right));
    if (!right) return;
    const nearest = far.indexOf(Math.min(...far)), k = sizes.findIndex((point) => point.n >= n);
    const exact = far[nearest] < 1e-6;
    const what = exact ? "" : k > 0 ? interpolated(n, sizes[k - 1], sizes[k])
      : `beyond the listed sizes, which run from ${sizes[0].label} to ${sizes[last].label}.`;
    between.hidden = exact;
    between.replaceChildren(el("strong", {}, `At ${text}: `), what, ` Below: the answer at ${sizes[nearest].label}, the nearest one.`);
    for (const answer of section.querySelectorAll("[data-size]")) answer.hidden = Number(answer.dataset.size) !== nearest;
    for (const part of section.querySelectorAll("[data-at]")) part.hidden = part.dataset.at !== at.value;
    slider.value = Math.log(n);
    slider.setAttribute("aria-valuetext", text);
    line.textContent = command[0] + text.replace(/[\s_,]/g, "") + command[1] + at.value + command[2];
  }

  const ask = () => update(parseCount(typed.value), typed.value.trim());
  typed.addEventListener("input", ask);
  at.addEventListener("change", ask);
  slider.addEventListener("input", () => {
    typed.value = formatCount(Math.exp(slider.value));
    ask();
  });
}
