/* Numbers and sentences as dwsweep.text and `dwsweep guide` write them. */

function significant(value, digits) { return Number(value.toPrecision(digits)); }

function roundedDown(value, digits) {
  const unit = 10 ** (Math.floor(Math.log10(value)) + 1 - digits);
  return significant(Math.floor(value / unit) * unit, digits);
}

function grouped(value, digits = 0) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** 950, 30K, 1.02M, 65.5B, 1T, 2.5e18. */
function formatCount(value) {
  if (Math.abs(value) >= 0.9995e15) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
    if (Math.abs(value) >= 0.9995 * size) return `${significant(value / size, 3)}${letter}`;
  }
  return String(significant(value, 3));
}

/** 1.13, 41.7, 1,670. */
function formatFactor(value) {
  if (value >= 1e7) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return value >= 100 ? grouped(significant(value, 3)) : String(significant(value, 3));
}

/** 1.3e9, 60k, 125M, 3B (or 3G), 1T as a number; NaN for anything else. */
function parseCount(text) {
  const found = /^\s*([0-9][0-9_.,]*(?:e[+-]?[0-9]+)?|\.[0-9]+)\s*([kmbgt]?)\s*$/i.exec(text);
  if (!found) return NaN;
  const power = { "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[found[2].toLowerCase()];
  const value = Number(found[1].replace(/[_,]/g, "")) * power;
  return value > 0 && Number.isFinite(value) ? value : NaN;
}

/** 32x2816 as [32, 2816]; null for anything else. */
function parseShape(text) {
  const found = /^\s*(\d{1,6})\s*[x×]\s*(\d{1,7})\s*$/i.exec(text);
  return found && Number(found[1]) && Number(found[2]) ? [Number(found[1]), Number(found[2])] : null;
}

const SPOKEN = { size: "equal size", flops: "equal training FLOPs", time: "equal training time" };

function labelOf(row) { return `${row.depth} × ${row.width}`; }

function numberText(value, digits = 1) { return grouped(value, value < 99.95 ? digits : 0); }

/** 48.5 (47.4 … 49.6); an end without a bound is said. */
function intervalText(value, low, high) {
  const [a, b] = [low, high].map((end) => (end === null ? "no bound" : numberText(end)));
  return `${numberText(value)} (${a} … ${b})`;
}

/** First line of the verdict: what to build, and what under the other constraints. */
function buildLine(answer, options, constants) {
  const row = answer.recommended, near = `${Math.round(100 * constants.budget_tolerance)} %`;
  if (!row) {
    const why = answer.rows.some((one) => one.within)
      ? `what the shapes within ${near} of the budget cost is beyond what the source can speak of.`
      : `no shape that meets the constraints is within ${near} of the budget.`;
    return ["Nothing is recommended: ", why];
  }
  let heads = `${row.heads} head${row.heads > 1 ? "s" : ""} of ${row.headSize}`;
  if (row.kvHeads !== row.heads) heads += `, ${row.kvHeads} for keys and values`;
  const others = constants.constraints.filter((name) => name !== options.at && answer.best[name])
    .map((name) => `at ${SPOKEN[name]} ${labelOf(answer.best[name])}`);
  return [`Build ${labelOf(row)}`, ` (${heads}; ${formatCount(row.n)}), the best at ${SPOKEN[options.at]}; `
    + `${others.join("; ")} (time on one ${options.device}, rate assumed).${apart(answer, options, constants)}`];
}

/** Why the shape to build is deeper or shallower than the best depth, where it is. */
function apart(answer, options, constants) {
  const likeliest = answer.optimum.depth, depth = answer.recommended.depth;
  if (options.at !== "size" || likeliest === null || Math.abs(depth - likeliest) < 1.5) return "";
  if (Math.max(depth / likeliest, likeliest / depth) <= constants.build_apart) return "";
  return ` It costs least on average over all that the losses leave open; the likeliest best depth is ${likeliest.toFixed(1)}.`;
}

/** Second line: the depths that cost next to nothing, and what the usual shape costs. */
function freeLine(answer, options, constants) {
  const near = answer.near[0];
  // whole numbers of layers inside; the ends lie on a grid
  const low = near.low === null ? 1 : Math.max(1, Math.ceil(near.low - constants.free_grid));
  const high = near.high === null ? "all that can be spoken of" : Math.max(low, Math.floor(near.high + constants.free_grid));
  const depths = low === high ? `Only a depth of ${low} costs` : `Depths ${low} to ${high} cost`;
  const said = [depths, ` next to nothing at equal size: ${significant(near.percent, 6)} % of the `
    + `loss, as if you had ${near.less.toFixed(1)} % less compute.`];
  const cost = answer.usual && answer.usual[options.at];
  if (cost) {
    said[1] += ` The usual shape, ${labelOf(answer.usual)} as in GPT-3's table, is as if you had `
      + `${cost.less.toFixed(1)} % less compute (${cost.nats.toFixed(4)} nats).`;
  }
  return said;
}

/** Third line: the level of trust and its reasons, the gravest first. */
function trustLine(found, tables) {
  const K = tables.constants, { level, apart, least, most, forms } = found.trust;
  const where = tables.own ? "the sizes at which your losses say how deep" : "the data of the published law";
  const reasons = [found.factor <= 1 ? `inside ${where}` : `${formatFactor(found.factor)} times outside ${where}`];
  if (forms.length > 1) {
    const beyond = found.factor > 1 && Object.keys(found.rejected).length > 0;
    const said = apart <= K.forms_agree ? "agree" : beyond ? "fit as well, or did not," : "fit as well";
    const named = [...new Set([least, most].map((depth) => depth.toFixed(depth < 10 ? 1 : 0)))].join(" to ");
    reasons.push(`forms that ${said} put the best depth at ${named}`);
  } else reasons.push(tables.own ? "one form is left" : "one form only");
  reasons.push(tables.own ? "your recipe's own losses"
    : `another recipe may shift it by ${K.recipe_factor} times in N (ASSUMED); costs from ASSUMED slopes`);
  const text = reasons.join("; ");
  return [`Trust: ${level}. `, `${text[0].toUpperCase()}${text.slice(1)}.`];
}

/** Why there is no answer at a size. */
function refusal(found, tables) {
  const span = `${formatCount(tables.valid_from)} to ${formatCount(tables.valid_to)}`;
  if (found.factor <= tables.limit && found.tooSmall) return "Refused: smaller than all that this page has numbers for.";
  if (found.factor <= tables.limit) {
    return found.depth === null ? "No best depth: it lies beyond the depths that the source can speak of."
      : `Refused: the law puts the best depth below one layer; its range is ${span}.`;
  }
  return `Refused: ${formatFactor(found.factor)} times outside the range of the law, ${span}; `
    + `do not use beyond ${formatCount(tables.valid_to * tables.limit)}.`;
}

/** The verdict on a shape, one line for each constraint. */
function verdictLines(row, tables, options) {
  const size = `${row.depth} × ${row.width}, ${formatCount(row.n)}`;
  if (row.said === "refused") return [[size, `: no verdict. ${refusal(row.optimum, tables)}`]];
  const lines = [[`${size}: ${row.said}`, `; ${row.ratio.toFixed(2)} times as deep as the best.`]];
  for (const name of tables.constants.constraints) {
    const cost = row.costs[name], better = row.best[name];
    if (!cost) {
      lines.push(["", `At ${SPOKEN[name]}: not known, beyond what the source can speak of.`]);
      continue;
    }
    const on = name === "time" ? ` on one ${options.device}` : "";
    const best = !better || (better.depth === row.depth && better.width === row.width)
      ? "; no shape of about this size costs less" : `; best ${labelOf(better)} (${formatCount(better.n)})`;
    lines.push(["", `At ${SPOKEN[name]}${on}: as if you had ${cost.less.toFixed(1)} % less compute `
      + `(${cost.nats.toFixed(4)} nats)${best}.`]);
  }
  return lines;
}
