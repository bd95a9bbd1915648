/* Numbers as dwsweep.text writes and reads them. */

function significant(value, digits) { return Number(value.toPrecision(digits)); }

/** 950, 30K, 1.02M, 65.5B, 1T, 2.5e18. */
function formatCount(value) {
  if (Math.abs(value) >= 0.9995e15) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
    if (Math.abs(value) >= 0.9995 * size) return `${significant(value / size, 3)}${letter}`;
  }
  return String(significant(value, 3));
}

/** 1.3e9, 60k, 125M, 3B (or 3G), 1T as a number; NaN for anything else. */
function parseCount(text) {
  const found = /^\s*([0-9][0-9_.,]*(?:e[+-]?[0-9]+)?|\.[0-9]+)\s*([kmbgt]?)\s*$/i.exec(text);
  if (!found) return NaN;
  const power = { "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[found[2].toLowerCase()];
  const value = Number(found[1].replace(/[_,]/g, "")) * power;
  return value > 0 && Number.isFinite(value) ? value : NaN;
}
