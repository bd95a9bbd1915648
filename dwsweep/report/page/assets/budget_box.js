/* The box for a budget: what a reader types, the verdict of `dwsweep guide`, its shapes and its curve. */

function budgetBox(root, tables) {
  const guide = makeGuide(tables), K = tables.constants;
  const fields = {};

  function field(name, label, input, hint) {
    fields[name] = input;
    input.id = `ask-${name}`;
    input.addEventListener("input", update);
    return el("label", { for: input.id }, el("span", {}, label), input, hint ? el("small", {}, hint) : null);
  }
  const typed = (value, attributes) => el("input", { type: "text", value, autocomplete: "off", spellcheck: "false", ...attributes });
  const choice = (pairs) => el("select", {}, ...pairs.map(([value, label]) => el("option", { value }, label)));

  const inside = tables.inside, measured = tables.own ? tables : inside;
  const start = measured ? formatCount(roundedDown(measured.valid_to, 2)) : "3B";
  const form = el("div", { class: "ask", role: "group", "aria-label": "Your budget" },
    field("params", "Parameters N", typed(start), "3e9, 3B or 125M; without embeddings"),
    field("shape", "Your shape, if any", typed("", { placeholder: "32x2816" }), "depth x width"),
    field("at", "Compare at", choice(K.constraints.map((name) => [name, SPOKEN[name]]))),
    field("device", "Device", choice(tables.devices.map(({ name }) => [name, name]))),
    field("mlp", "MLP", choice([["plain", "plain"], ["gated", "gated"]])),
    field("kvHeads", "KV heads", typed("", { inputmode: "numeric", placeholder: "as many as heads" })),
    field("widthMultiple", "Width multiple", typed("", { inputmode: "numeric", placeholder: "usual" })),
    field("vocab", "Vocabulary", typed(String(tables.vocab), { inputmode: "numeric" })),
    field("context", "Context", typed(String(tables.context), { inputmode: "numeric" })));
  fields.device.value = "H100";

  const error = el("p", { class: "wrong", role: "alert" });
  const verdict = el("div", { class: "answer", id: "verdict", role: "status", "aria-live": "polite", "aria-atomic": "true" });
  const figure = el("div", { class: "drawing" }), table = el("div", {});
  const save = el("p", { class: "buttons" },
    button("Curve as SVG", () => saveSvg("guide.svg", figure.querySelector("svg"))),
    button("Shapes as CSV", () => saveCsv("guide.csv", csvRows())));
  let shown = null;
  const redraw = drawnIn(figure, draw);

  function whole(name) {
    const text = fields[name].value.trim();
    return text === "" ? null : parseCount(text);
  }

  function options() {
    return { at: fields.at.value, device: fields.device.value, mlp: fields.mlp.value, kvHeads: whole("kvHeads"),
      widthMultiple: whole("widthMultiple"), vocab: whole("vocab") ?? tables.vocab,
      context: whole("context") ?? tables.context };
  }

  function line([strong, rest]) { return el("p", {}, strong ? el("strong", {}, strong) : null, rest); }

  function update() {
    const asked = options(), n = parseCount(fields.params.value), shapeText = fields.shape.value.trim();
    const shape = shapeText ? parseShape(shapeText) : null, lines = [], wrong = [];
    let answer = null, own = null;
    if (Number.isNaN(n)) wrong.push("Parameters: a positive number, such as 1.3e9, 60k, 125M, 3B or 1T");
    else answer = guide.budget(n, asked);
    if (shapeText && !shape) wrong.push("Your shape: depth x width, such as 32x2816");
    else if (shape) own = guide.verdict(...shape, asked);
    for (const found of [answer, own]) if (found && found.error) wrong.push(found.error);
    if (answer && !answer.error) {
      lines.push(answer.optimum.refused ? ["", refusal(answer.optimum, guide.source(n))]
        : [`${formatCount(n)}: best depth ${intervalText(answer.optimum.depth, answer.optimum.low, answer.optimum.high)}`,
          `, width ${grouped(answer.optimum.width)}.`]);
      if (!answer.optimum.refused) {
        lines.push(buildLine(answer, asked, K), freeLine(answer, asked, K), trustLine(answer.optimum, guide.source(n)));
      }
    }
    if (own && !own.error) lines.push(...verdictLines(own, guide.source(own.n), asked));
    error.textContent = [...new Set(wrong)].join(". ");
    error.hidden = !wrong.length;
    for (const [name, bad] of [["params", Number.isNaN(n) || (answer && answer.error)], ["shape", shapeText && (!own || own.error)]]) {
      fields[name].setAttribute("aria-invalid", bad ? "true" : "false");
    }
    verdict.replaceChildren(...lines.map(line));
    verdict.hidden = !lines.length;
    shown = answer && !answer.error && !answer.optimum.refused ? { n, asked, answer, own } : null;
    for (const part of [figure, table, save]) part.hidden = !shown;
    if (shown) {
      redraw();
      tabulate();
    }
  }

  function percent(cost) { return cost ? cost.less.toFixed(1) : "–"; }

  function marked(row) {
    const { answer } = shown, same = (other) => other && other.depth === row.depth && other.width === row.width;
    return same(answer.recommended) ? "► " : same(answer.usual) ? "· " : "";
  }

  function tabulate() {
    const head = ["L × d", "size", "FLOPs", "time", "+nats", "heads", "N", "off", "decode"];
    const body = shown.answer.rows.map((row) => el("tr", { class: marked(row) === "► " ? "chosen" : null },
      el("th", { scope: "row", class: "text" }, marked(row) + labelOf(row)),
      ...K.constraints.map((name) => el("td", {}, percent(row[name]))),
      ...[row.size ? row.size.nats.toFixed(4) : "–",
        `${row.heads}×${row.headSize}${row.kvHeads !== row.heads ? `/${row.kvHeads}` : ""}`, formatCount(row.n),
        `${row.off < 0 ? "−" : "+"}${(100 * Math.abs(row.off)).toFixed(1)} %`,
        `${significant(1e3 * row.decodeSeconds, 3)} ms`].map((text) => el("td", {}, text))));
    table.replaceChildren(
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Shapes to build" },
        el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name, k) => el("th", { scope: "col", class: k ? null : "text" }, name)))),
          el("tbody", {}, ...body))),
      el("p", { class: "soft" }, "► recommended, · usual. size, FLOPs, time: by how many percent less compute, spent on the "
        + "best shape, would be as good; at equal non-embedding size against the best depth, at equal training FLOPs or time "
        + `on the same tokens against the best of these (one ${shown.asked.device}, rate assumed). decode: a token of one `
        + `sequence at ${grouped(shown.asked.context)} positions.`));
  }

  function csvRows() {
    const head = ["depth", "width", "heads", "head_size", "kv_heads", "mlp_hidden", "n_params", "n_params_total", "nats_size",
      "nats_flops", "nats_time", "flops_per_token", "training_seconds_per_token", "decode_seconds_per_token"];
    const nats = (cost) => (cost ? cost.nats : null);
    return [head, ...shown.answer.rows.map((r) => [r.depth, r.width, r.heads, r.headSize, r.kvHeads, r.hidden, r.n, r.total,
      nats(r.size), nats(r.flops), nats(r.time), r.flopsPerToken, r.seconds, r.decodeSeconds])];
  }

  /** Cost against depth: at equal size as a line, of each shape under the constraint as a point. */
  function draw(width) {
    if (!shown) return;
    const { n, asked, answer, own } = shown, at = asked.at, spoken = guide.spoken(n);
    const known = answer.rows.filter((row) => row[at]);
    const mine = own && own.costs && own.costs[at] && own.n < 2 * n && n < 2 * own.n ? own.costs : null;
    const depths = [...known, ...(mine ? [mine] : []), { depth: answer.optimum.depth }].map((row) => row.depth);
    const low = Math.max(spoken[0], Math.min(...depths) / 1.3);
    const high = Math.min(spoken[spoken.length - 1], Math.max(...depths) * 1.3);
    const top = 1.15 * Math.max(2, ...known.map((row) => row[at].less), ...(mine ? [mine[at].less] : []));
    const drawing = plot({ width, height: Math.min(340, Math.max(260, width * 0.45)), x: [low, high], y: [-0.05 * top, top], logX: true,
      xLabel: "depth L", yLabel: "as if % less compute", xFormat: (value) => String(value),
      label: `What each depth costs at ${formatCount(n)} parameters; least at ${numberText(answer.optimum.depth)} layers` });
    const { marks, x, y, frame } = drawing, near = answer.near[0];
    const [a, b] = [near.low ?? low, near.high ?? high].map((d) => x(Math.min(high, Math.max(low, d))));
    marks.append(svg("rect", { class: "near", x: a, y: frame.top, width: Math.max(0, b - a), height: frame.bottom - frame.top }),
      svg("path", { class: "curve", d: lineThrough(guide.curve(n, low, high).map(([d, , less]) => [x(d), y(less)])) }));
    if (at !== "size") {
      marks.append(svg("path", { class: "curve dashed", d: lineThrough(known.map((row) => [x(row.depth), y(row[at].less)])) }));
    }
    const named = (row, kind, label, place) => marks.append(
      svg("circle", { class: kind, cx: x(row.depth), cy: y(row[at].less), r: kind === "shape" ? 3.5 : 6 },
        svg("title", {}, `${labelOf(row)}: ${percent(row[at])} % at ${SPOKEN[at]}`)),
      ...(label ? [svg("text", { class: "named", x: x(row.depth), y: y(row[at].less) + place,
        "text-anchor": x(row.depth) > 0.75 * width ? "end" : x(row.depth) < 0.25 * width ? "start" : "middle" }, label)] : []));
    known.forEach((row) => named(row, "shape"));
    if (answer.recommended) named(answer.recommended, "chosen", `build ${labelOf(answer.recommended)}`, -12);
    if (mine) named(mine, "mine", `yours ${labelOf(mine)}`, -26);
    figure.replaceChildren(drawing.root,
      el("p", { class: "soft" }, `Line: cost of each depth at equal size; points${at === "size" ? "" : ", dashed"}: shapes one `
        + `can build, at ${SPOKEN[at]}; ` + "shaded: depths that cost next to nothing."));
  }

  root.replaceChildren(
    el("p", { class: "soft" }, "What ", el("code", {}, "dwsweep guide"), ` answers, computed in this page. `
      + (inside ? `From ${formatCount(inside.valid_from)} to ${formatCount(inside.valid_to)} parameters: ${inside.source}; `
        + `nats ${inside.tag}. Elsewhere: ` : "Source: ") + `${tables.source}; nats ${tables.tag}.`),
    form, error, verdict, figure, save, table);
  update();
}
