/* The arithmetic of `dwsweep guide`, for one budget or one shape.

What depends on the loss alone comes from Python as tables (loss.js). What depends on the reader's input is computed here
as in dwsweep/guide: the shapes that one can build, their counts, FLOPs, bytes and seconds, and what each costs. Constants
come with the tables, so they stand in one place.
tests/test_page_guide.py holds every number against dwsweep.guide. */

/** What guides at each size: the source of the tables, and inside the data another where they hold one. */
function makeGuide(tables) {
  const beyond = guideOf(tables), inside = tables.inside && guideOf(tables.inside);
  const at = (n) => (inside && inside.answers(n) ? inside : beyond);
  return {
    source: (n) => at(n).tables,
    budget: (n, options) => at(n).budget(n, options),
    verdict(depth, width, options) {
      const found = beyond.verdict(depth, width, options);
      return found.error || at(found.n) === beyond ? found : inside.verdict(depth, width, options);
    },
    curve: (n, low, high) => at(n).curve(n, low, high),
    spoken: (n) => at(n).spoken(n),
  };
}

function guideOf(tables) {
  const K = tables.constants;

  const B = tables.best;
  const { level, bestDepthAt, column, spoken, penalties, stretch, nearBest, extrapolation, tooSmall, refuses, answers,
    lessCompute, slope } = makeLoss(tables);

  // ---- shapes ----

  function headSize(n) { return n >= 3e9 ? 128 : n >= 3e7 ? 64 : null; }

  function widthStep(n, options) {
    const head = headSize(n), heads = options.kvHeads || 1;
    const usual = n >= 1e9 ? 128 : n >= 1e8 ? 64 : 8;
    return lcm(options.widthMultiple || usual, head ? head * heads : 2 * lcm(2, heads));
  }

  /** The shape with a head size (null: two heads, or as many as key/value heads ask for); null: heads do not fit. */
  function built(depth, width, head, options) {
    const gated = options.mlp === "gated";
    const count = head ? width / head : lcm(2, options.kvHeads || 1);
    const size = head || width / count;
    if (!Number.isInteger(count) || !Number.isInteger(size) || count < 1) return null;
    const kv = options.kvHeads || count;
    if (count % kv) return null;
    const multiple = gated ? 8 : 1, ratio = gated ? 8 / 3 : 4;
    const hidden = multiple * Math.max(1, rounded(ratio * width / multiple));
    const layer = 2 * width * count * size + 2 * width * kv * size + (gated ? 3 : 2) * width * hidden;
    const n = depth * layer;
    const total = n + 2 * options.vocab * width + (2 * depth + 1) * width;
    return { depth, width, heads: count, headSize: size, kvHeads: kv, hidden, gated, n, total };
  }

  /** The shape for a net of about n parameters; with key/value heads its head size is always that of its own size. */
  function shape(depth, width, options, n) {
    const own = 12 * depth * width ** 2;
    return built(depth, width, headSize(n === undefined || options.kvHeads ? own : n), options);
  }

  /** The width of this depth that comes nearest to a budget. */
  function matchedWidth(depth, budget, options) {
    const step = widthStep(budget, options), head = headSize(budget);
    const count = (k) => built(depth, k * step, head, options).n;
    let low = 1, high = 1;
    while (count(high) < budget) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (count(middle) < budget) low = middle; else high = middle;
    }
    return step * (Math.abs(count(high) - budget) < Math.abs(count(low) - budget) ? high : low);
  }

  function meets(one, budget) { return Math.abs(one.n / budget - 1) <= K.budget_tolerance; }

  function refused(one, options) { return Boolean(options.widthMultiple && one.width % options.widthMultiple); }

  /** All depths below 128, every second below 256, …: a grid that hangs on neither end. */
  function lattice(low, high) {
    const found = [];
    for (let depth = Math.max(1, Math.floor(low)); depth <= Math.max(1, Math.ceil(high)); depth++) {
      if (depth % Math.max(1, 2 ** (Math.floor(Math.log2(depth)) - 6)) === 0) found.push(depth);
    }
    return found;
  }

  /** The depth at which each possible width comes nearest to the budget. */
  function depthsOfWidths(budget, low, high, options) {
    const step = widthStep(budget, options), head = headSize(budget);
    const layer = built(1, step, head, options).n / step ** 2;
    const [narrow, wide] = [high, low].map((depth) => Math.sqrt(budget / (layer * depth)) / step);
    const found = [];
    for (const value of linspace(Math.max(1, Math.floor(narrow)), Math.ceil(wide), K.most_widths)) {
      const [one, two] = [1, 2].map((depth) => built(depth, rounded(value) * step, head, options).n);
      const depth = rounded(1 + (budget - one) / (two - one));
      if (low <= depth && depth <= high) found.push(depth);
    }
    return found;
  }

  function shapesNear(budget, low, high, options) {
    const found = [];
    for (const depth of new Set([...lattice(low, high), ...depthsOfWidths(budget, low, high, options)])) {
      const one = shape(depth, matchedWidth(depth, budget, options), options, budget);
      const share = one && one.n / budget;
      if (one && !refused(one, options) && 1 / K.farthest <= share && share <= K.farthest) found.push(one);
    }
    found.sort((a, b) => a.depth - b.depth);
    const off = (one) => Math.abs(one.n / budget - 1);
    const nearest = [...found].sort((a, b) => off(a) - off(b));
    const meeting = found.filter((one) => meets(one, budget)).length;
    return nearest.slice(0, Math.max(meeting, K.fewest_rows)).sort((a, b) => a.depth - b.depth);
  }

  /** The shape of GPT-3's table at a size; null where no width comes near. */
  function usualShape(n, options) {
    const at = tables.gpt3.map((row) => row[0]), x = Math.min(Math.max(Math.log(n), at[0]), at[at.length - 1]);
    const depth = Math.max(1, rounded(Math.exp(mixed(tables.gpt3.map((row) => row[1]), linear(at, x)))));
    const one = shape(depth, matchedWidth(depth, n, options), options, n);
    return one && meets(one, n) && !refused(one, options) ? one : null;
  }

  function withOne(shapes, more) {
    if (!more || shapes.some((one) => same(one, more))) return shapes;
    return [...shapes, more].sort((a, b) => a.depth - b.depth || a.width - b.width);
  }

  function same(a, b) { return Boolean(a && b) && a.depth === b.depth && a.width === b.width; }

  // ---- what a shape costs ----

  function flopsPerToken(one, options) {
    const attention = 4 * one.depth * one.heads * one.headSize * options.context;
    return 3 * (2 * one.n + attention + 2 * options.vocab * one.width);
  }

  /** Assumed seconds of one training token on one device: products, then the traffic that small widths cannot hide. */
  function trainingSeconds(one, options, device) {
    const inner = one.hidden * (one.gated ? 2 : 1), float32 = 4, operand = 2;
    const again = 2 * float32 * (one.heads * options.context + inner);
    const block = (2 * float32 + 3 * operand) * one.width + 4 * operand * one.heads * one.headSize
      + float32 * one.heads + operand * inner;
    const once = 2 * float32 * options.vocab + (float32 + operand) * one.width + again;
    const traffic = K.activation_passes * (one.depth * (block + again) + once)
      + 7 * float32 * one.total / K.tokens_per_step;
    return flopsPerToken(one, options) / (K.peak_share * device.peak_flops)
      + traffic / (K.bandwidth_share * device.bandwidth);
  }

  function decodeSeconds(one, options, device) {
    const cache = 2 * one.depth * one.kvHeads * one.headSize * options.context;
    const bytes = 2 * (one.n + options.vocab * one.width + cache);
    return bytes / (K.bandwidth_share * device.bandwidth) + one.depth * K.layer_seconds;
  }

  /** At equal size, against the best depth there; null where the source says nothing of it. */
  function sizeCost(depth, n) {
    if (refuses(n) || bestDepthAt(n) === null) return null;
    const depths = spoken(n);
    if (depth < depths[0] - 1e-9 || depth > depths[depths.length - 1] + 1e-9) return null;
    const [nats] = penalties(n, [depth]);
    return { nats, less: lessCompute(n, nats) };
  }

  function costed(shapes, n, options, device) {
    const rate = slope(n), fits = shapes.map((one) => meets(one, n)), none = !fits.some(Boolean);
    const rows = shapes.map((one, k) => ({
      ...one,
      off: one.n / n - 1,
      within: fits[k],
      size: sizeCost(one.depth, one.n),
      flopsPerToken: flopsPerToken(one, options),
      seconds: trainingSeconds(one, options, device),
      decodeSeconds: decodeSeconds(one, options, device),
    }));
    const compared = rows.map((row) => row.size !== null && (row.within || none));
    const spending = (name, spent) => {
      const above = rows.map((row) => (row.size ? row.size.nats + rate * Math.log(spent(row) / row.n) : NaN));
      const least = Math.min(...above.filter((_, k) => compared[k]));
      rows.forEach((row, k) => {
        const nats = above[k] - least;
        row[name] = compared[k] ? { nats, less: lessCompute(n, nats) } : null;
      });
    };
    spending("flops", (row) => row.flopsPerToken);
    spending("time", (row) => row.seconds);
    return rows;
  }

  /** Of least cost under a constraint; of those that tie with it, the one nearest to the budget. */
  function bestOf(rows, constraint) {
    const known = rows.filter((row) => row.within && row[constraint]);
    const least = Math.min(...known.map((row) => row[constraint].nats));
    const tied = known.filter((row) => row[constraint].nats <= least + K.tie_nats);
    return tied.reduce((best, row) => (!best || Math.abs(row.off) < Math.abs(best.off) ? row : best), null);
  }

  /** Shapes to compare at a size, and one more, with their costs; as ``_candidates`` of guide/advice.py. */
  function candidates(n, more, options) {
    let rows = [];
    for (const tolerance of K.spans) {
      const shapes = shapesNear(n, ...stretch(n, tolerance), options);
      rows = costed(withOne(shapes, more), n, options, device(options));
      const meeting = rows.filter((row) => row.within && shapes.some((one) => same(one, row)));
      const ends = [meeting[0], meeting[meeting.length - 1]];
      if (meeting.length >= K.fewest_rows && !K.constraints.some((name) => ends.includes(bestOf(meeting, name)))) break;
    }
    return rows;
  }

  function bests(rows) { return Object.fromEntries(K.constraints.map((name) => [name, bestOf(rows, name)])); }

  function thinned(rows, keep) {
    if (rows.length <= K.most_rows) return rows;
    const even = new Set(linspace(0, rows.length - 1, K.most_rows).map(rounded));
    return rows.filter((row, k) => even.has(k) || keep.some((other) => same(other, row)));
  }

  // ---- the best depth and how far to trust it ----

  function optimum(n) {
    const depth = bestDepthAt(n);
    const pairs = (columns) => Object.entries(columns)
      .map(([form, values]) => [form, column(values, n)]).filter(([, value]) => value !== null);
    const found = {
      n, depth, factor: extrapolation(n), tooSmall: tooSmall(n), refused: depth === null || depth < 1 || refuses(n),
      rivals: Object.fromEntries(pairs(B.rivals)),
      rejected: Object.fromEntries(pairs(B.rejected)),
    };
    if (!found.refused) {
      Object.assign(found, { low: column(B.low, n), high: column(B.high, n), lawLow: column(B.law_low, n),
        lawHigh: column(B.law_high, n), width: Math.sqrt(n / (12 * depth)) });
    }
    found.trust = trust(found);
    return found;
  }

  /** Level by the rule in dwsweep/guide/trust.py, with the numbers that it rests on. */
  function trust(found) {
    if (found.refused) return { level: "low", forms: [] };
    const every = [found.depth, ...Object.values(found.rivals)];
    if (found.factor > 1) every.push(...Object.values(found.rejected));
    const least = Math.min(...every), most = Math.max(...every);
    const apart = most / least, spread = found.low && found.high ? found.high / found.low : Infinity;
    let level = "medium";
    if (found.factor > (tables.own ? K.near : 1) || apart > K.forms_apart || spread === Infinity) level = "low";
    else if (tables.own && found.factor <= 1 && apart <= K.forms_agree && spread <= tables.ends_agree) level = "high";
    return { level, apart, least, most, forms: every };
  }

  /** What is wrong with the options, in words; empty if nothing. */
  function wrong(options) {
    const sizes = { "width multiple": options.widthMultiple, "KV heads": options.kvHeads,
      vocabulary: options.vocab, context: options.context };
    const bad = Object.entries(sizes).filter(([, value]) =>
      value !== null && !(Number.isInteger(value) && value >= 1 && value <= K.most));
    return bad.map(([name]) => `${name}: must be a whole number from 1 to ${K.most}`).join("; ");
  }

  function tooWide(n, options) {
    return `width multiple, KV heads: together they ask for widths that are multiples of ${widthStep(n, options)}`;
  }

  function device(options) { return tables.devices.find((one) => one.name === options.device); }

  // ---- the two questions ----

  /** How deep and how wide for n non-embedding parameters. */
  function budget(n, options) {
    const error = wrong(options) || (n >= tables.least && n <= 1e30 ? ""
      : `parameters: must be at least ${tables.least} (and at most 1e30)`);
    if (error) return { error };
    const found = optimum(n);
    if (found.refused) return { optimum: found };
    if (widthStep(n, options) > K.widest_step) return { error: tooWide(n, options) };
    const usual = usualShape(n, options);
    const rows = candidates(n, usual, options);
    const best = bests(rows);
    return {
      optimum: found,
      near: K.tolerances.map((tolerance) => nearBest(n, tolerance)),
      best,
      recommended: best[options.at],
      usual: rows.find((row) => same(row, usual)) || null,
      rows: thinned(rows, [...Object.values(best), usual]),
      level: level(n),
    };
  }

  /** Too deep, too shallow, balanced or undecided, and what a shape costs at its own size. */
  function verdict(depth, width, options) {
    let own = shape(depth, width, options);
    // where the usual head size does not divide the width: two heads, or one, which hardly count
    if (!own && !options.kvHeads) own = built(depth, width, Math.floor(width / (1 + (width % 2 === 0))), options);
    const error = wrong(options) || (!own ? `${depth}x${width}: the heads do not fit this width`
      : refused(own, options) ? `${depth}x${width}: the width is no multiple of ${options.widthMultiple}` : "");
    if (error) return { error };
    const found = optimum(own.n);
    if (found.refused) return { depth, width, n: own.n, optimum: found, said: "refused" };
    if (widthStep(own.n, options) > K.widest_step) return { error: tooWide(own.n, options) };
    const rows = candidates(own.n, own, options);
    const mine = rows.find((row) => same(row, own));
    let said = "balanced";
    if (tables.own && mine.size && mine.size.nats <= K.tolerances[0] * level(own.n)) said = "balanced";
    else if (found.lawHigh !== null && depth > found.lawHigh + Math.min(tables.spacing, found.depth)) {
      said = found.high !== null && depth > found.high ? "too deep" : "undecided";
    } else if (found.lawLow !== null && depth < found.lawLow) {
      said = found.low !== null && depth < found.low ? "too shallow" : "undecided";
    }
    return { depth, width, n: own.n, optimum: found, said, ratio: depth / found.depth, costs: mine, best: bests(rows) };
  }

  /** [[depth, nats, percent less compute], …] at a size, for the curve. */
  function curve(n, low, high) {
    const depths = geomspace(low, high, 121), nats = penalties(n, depths);
    return depths.map((depth, k) => [depth, Math.max(0, nats[k]), lessCompute(n, Math.max(0, nats[k]))]);
  }

  return { tables, answers, budget, verdict, curve, spoken };
}
