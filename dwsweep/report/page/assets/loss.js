/* The loss of dwsweep.guide.loss at any size and depth, from the tables of loss_tables.py over ln N and ln L: interpolated
here, never computed again. */

function makeLoss(tables) {
  const K = tables.constants;
  const L = tables.loss, B = tables.best;

  /** Weights at ln N; a stencil stays within one stretch, since the model has kinks between them. */
  function atSize(x) {
    const last = L.stretches.length - 1;
    let k = 0;
    while (k < last && x > L.x[L.stretches[k][1]]) k++;
    return cubic(L.x, x, L.stretches[k][0], L.stretches[k][1]);
  }

  function level(n) { return mixed(L.level, atSize(Math.log(n))); }

  /** −d loss / d ln N of the best depth. */
  function slope(n) {
    if (L.slope) return mixed(L.slope, atSize(Math.log(n)));
    const x = Math.log(n), step = L.slope_step;
    return (mixed(L.level, atSize(x - step)) - mixed(L.level, atSize(x + step))) / (2 * step);
  }

  const kept = new Map();

  /** The least over the whole numbers of layers between two points of the grid, which from some depth on stand for these. */
  function least(row, first, last) {
    let found = Infinity;
    const deepest = Math.min(L.whole, Math.floor(Math.exp(L.y[last]) + 1e-9));
    for (let depth = Math.ceil(Math.exp(L.y[first]) - 1e-9); depth <= deepest; depth++) {
      found = Math.min(found, mixed(row, linear(L.y, Math.log(depth))));
    }
    for (let k = first; k <= last; k++) if (L.y[k] >= Math.log(L.whole)) found = Math.min(found, row[k]);
    return found;
  }

  /** Above the best between the depths trained, or beyond their end where it is the best of them. */
  function aboveLowest(row) {
    const first = L.y.findIndex((y) => y > Math.log(L.shallowest) - 1e-9);
    const last = L.y.findLastIndex((y) => y < Math.log(L.deepest) + 1e-9);
    const at = first + lowest(row.slice(first, last + 1));
    let best = least(row, first, last);
    if (at === last && last < row.length - 1) best = Math.min(best, least(row, last, row.length - 1));
    if (at === first && first > 0) best = Math.min(best, least(row, 0, first));
    return row.map((value) => value - best);
  }

  /** Nats above the best depth along L.y at a size. */
  function profile(n) {
    if (!kept.has(n)) {
      if (kept.size > 200) kept.clear();
      const weights = atSize(Math.log(n));
      const row = L.y.map((_, j) => weights.reduce((sum, [k, weight]) => sum + weight * L.penalty[k][j], 0));
      kept.set(n, L.whole ? aboveLowest(row) : row);
    }
    return kept.get(n);
  }

  function penalties(n, depths) {
    const row = profile(n), last = L.y.length - 1;
    return depths.map((depth) => {
      const y = Math.min(Math.max(Math.log(depth), L.y[0]), L.y[last]);
      return L.cubic ? mixed(row, cubic(L.y, y, 0, last)) : Math.max(0, mixed(row, linear(L.y, y)));
    });
  }

  /** A column of the table of best depths at a size (kept as ln); null where there is none. */
  function column(values, n) {
    const x = Math.log(n), [[k, left], [, right]] = linear(B.x, x);
    const a = values[k], b = values[k + 1];
    if (a === null || b === null) {
      const nearest = left >= right ? a : b;
      return nearest === null ? null : Math.exp(nearest);
    }
    const around = B.cubic ? cubic(B.x, x, 0, B.x.length - 1) : [];
    if (around.length && around.every(([j]) => values[j] !== null)) return Math.exp(mixed(values, around));
    return Math.exp(left * a + right * b);
  }

  function bestDepthAt(n) { return column(B.depth, n); }

  /** Depths that the source can speak of, as dwsweep.guide.loss spreads them. */
  function spoken(n) {
    if (L.trained) return geomspace(L.shallowest, L.deepest, K.depths);
    const best = bestDepthAt(n) ?? L.deepest;
    const low = Math.max(1, Math.min(L.shallowest ?? Infinity, best / 8));
    return geomspace(low, Math.min(Math.max(L.deepest ?? 2, best * 8), L.end ?? Infinity), K.depths);
  }

  function extrapolation(n) {
    const factor = Math.max(n / tables.valid_to, tables.valid_from / n);
    return factor > tables.constants.as_printed ? factor : 1;
  }
  function tooSmall(n) { return Math.log(n) < L.x[0] - 1e-6; }
  function answers(n) { return extrapolation(n) <= 1 && bestDepthAt(n) >= 1; }
  function refuses(n) { return extrapolation(n) > tables.limit || tooSmall(n); }

  function lessCompute(n, nats) { return 100 * (1 - Math.exp(-nats / slope(n))); }

  /** (shallow, deep) ends of the depths at most `nats` above the best. */
  function ends(depths, above, nats) {
    const best = lowest(above), least = above[best];
    let low = best, high = best;
    while (low > 0 && !(above[low - 1] - least > nats)) low--;
    while (high < depths.length - 1 && !(above[high + 1] - least > nats)) high++;
    return [depths[low], depths[high]];
  }

  function stretch(n, tolerance) {
    const depths = spoken(n);
    return ends(depths, penalties(n, depths), tolerance * level(n));
  }

  function nearBest(n, tolerance) {
    const depths = spoken(n), nats = tolerance * level(n);
    const bounded = (value) =>
      value <= depths[0] * 1.000001 || value >= depths[depths.length - 1] * 0.999999 ? null : value;
    const [low, high] = ends(depths, penalties(n, depths), nats);
    return { percent: 100 * tolerance, nats, less: lessCompute(n, nats), low: bounded(low), high: bounded(high) };
  }

  return { level, bestDepthAt, column, spoken, penalties, stretch, nearBest, extrapolation, tooSmall, refuses, answers,
    lessCompute, slope };
}
