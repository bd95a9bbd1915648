/* Rounding, spacing and interpolation, as the Python of dwsweep.guide and NumPy have them. */

/** To the nearest whole number, halves to the even one, as Python rounds. */
function rounded(value) {
  const low = Math.floor(value), part = value - low;
  return part > 0.5 || (part === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

function gcd(a, b) { return b ? gcd(b, a % b) : a; }
function lcm(a, b) { return a / gcd(a, b) * b; }

function linspace(low, high, count) {
  return Array.from({ length: count }, (_, k) => (k === count - 1 ? high : low + (high - low) * k / (count - 1)));
}

/** Spread by ratio, both ends exact. */
function geomspace(low, high, count) {
  const inner = linspace(Math.log(low), Math.log(high), count).map(Math.exp);
  inner[0] = low;
  inner[count - 1] = high;
  return inner;
}

function lowest(values) {
  let best = 0;
  values.forEach((value, k) => { if (value < values[best]) best = k; });
  return best;
}

/** Index k with at[k] <= x <= at[k + 1]; the first or the last interval beyond the ends. */
function interval(at, x) {
  let low = 0, high = at.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at[middle] <= x) low = middle; else high = middle;
  }
  return low;
}

/** [[index, weight], …] of the cubic through the four points around x, all of them from `first` to `last`. */
function cubic(at, x, first, last) {
  const from = Math.max(first, Math.min(interval(at, x) - 1, last - 3));
  const out = [];
  for (let i = from; i < from + 4; i++) {
    let weight = 1;
    for (let j = from; j < from + 4; j++) if (j !== i) weight *= (x - at[j]) / (at[i] - at[j]);
    out.push([i, weight]);
  }
  return out;
}

function linear(at, x) {
  const k = interval(at, x), share = Math.min(1, Math.max(0, (x - at[k]) / (at[k + 1] - at[k])));
  return [[k, 1 - share], [k + 1, share]];
}

function mixed(values, weights) {
  return weights.reduce((sum, [k, weight]) => sum + weight * values[k], 0);
}
