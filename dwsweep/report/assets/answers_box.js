/* The box of answers: a size of the list and a constraint are chosen, and what `dwsweep guide` said of them is shown.
Every word and number of an answer stands in the page's data; nothing is computed here. */

function answersBox(root, guide) {
  const { sizes, constraints, blocks, answers } = guide;
  const size = el("select", { id: "ask-size", change: () => { typed.value = ""; update(); } },
    ...sizes.map(({ label }, k) => el("option", { value: k }, label)));
  const typed = el("input", { type: "text", id: "ask-params", autocomplete: "off", spellcheck: "false", placeholder: "3e9 or 3B", input: update });
  const at = el("select", { id: "ask-at", change: update }, ...constraints.map(([name, label]) => el("option", { value: name }, label)));
  size.value = guide.start;
  const field = (label, input, hint) => el("label", { for: input.id }, el("span", {}, label), input, hint ? el("small", {}, hint) : null);
  const error = el("p", { class: "wrong", role: "alert", hidden: true });
  const shown = el("p", { id: "shown", role: "status", "aria-live": "polite" });
  const verdict = el("div", { class: "answer", id: "verdict" });
  const command = el("pre", { id: "guide-command" });

  function nearest(n) {
    const far = sizes.map((one) => Math.abs(Math.log(one.n / n)));
    return far.indexOf(Math.min(...far));
  }

  function update() {
    const text = typed.value.trim(), n = text ? parseCount(text) : null, wrong = Number.isNaN(n);
    if (n && !wrong) size.value = nearest(n);
    const one = sizes[size.value], [params, constraint, rest] = guide.command;
    error.hidden = !wrong;
    error.textContent = wrong ? "A size is a positive number, such as 3e9, 60k, 125M, 3B or 1T." : "";
    typed.setAttribute("aria-invalid", String(wrong));
    shown.replaceChildren("Shown: ", el("strong", {}, one.label), n && !wrong && n !== one.n
      ? `, the listed size nearest to ${text}. The command below answers ${text} itself.` : ".");
    verdict.replaceChildren(...answers[at.value][size.value].map((k) => part(blocks[k])));
    command.textContent = params + (n && !wrong ? text.replace(/[\s_,]/g, "") : one.label) + constraint + at.value + rest;
  }

  root.replaceChildren(
    el("p", { class: "soft" }, "The answers of ", el("code", {}, "dwsweep guide"),
      ` at ${sizes.length} sizes, from ${sizes[0].label} to ${sizes[sizes.length - 1].label} non-embedding parameters. They were computed when this page was written.`),
    el("div", { class: "ask", role: "group", "aria-label": "Your budget" },
      field("Size N", size), field("or type one", typed, "shows the nearest of the list"), field("Best at", at)),
    error, shown, verdict,
    el("p", { class: "soft" }, "This command answers any size. ", el("code", {}, "dwsweep guide --help"), " lists its options for heads, vocabulary, devices and shapes."),
    command);
  update();
}

/** A line or a table of an answer. */
function part(block) {
  if (block.line) {
    return el("p", { class: block.soft ? "soft" : null }, ...block.line.map(([text, bold]) => (bold ? el("strong", {}, text) : text)));
  }
  const row = (tag, cells) => cells.map((text, k) => el(tag, { class: k ? null : "text" }, text));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Shapes to build" },
    el("table", {}, el("thead", {}, el("tr", {}, ...row("th", block.head))),
      el("tbody", {}, ...block.rows.map((cells, k) => el("tr", { class: block.chosen.includes(k) ? "chosen" : null }, ...row("td", cells))))));
}
