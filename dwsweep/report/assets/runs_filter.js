/* What the filter of the table of runs understands: words that a row must hold, and comparisons of a column with a number. */

const FILTER_HINT = "A row must hold every word. COLUMN<NUMBER compares a column, with <, <=, >, >= or =, such as loss<3.3, N>=1.2M or learning rate=0.001.";

/** {keeps: (text, cellOf) => whether a row stays, wrong: why a comparison cannot be read, in a line, and no row stays}.

cellOf(column) is the {value, text} of a cell. */
function runsFilter(typed, headings) {
  const known = headings.map((name) => name.toLowerCase()), tests = [];
  const plain = (name) => name.replace(/[ _]/g, "");
  // the longest first, so that a name that ends another is not taken for it; else any word that stands before a sign
  const names = [...known].sort((a, b) => b.length - a.length)
    .map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/ /g, "[ _]?"));
  const comparison = new RegExp(`(^|\\s)(${names.join("|")}|[^\\s<>=]*)\\s*(<=|>=|<|>|=)\\s*([^\\s<>=]*)(?=\\s|$)`, "g");
  let wrong = "";
  const rest = typed.toLowerCase().replace(comparison, (whole, before, name, sign, right) => {
    if (!name) return whole; // a word of a row, such as <b>
    const number = Number(right) === 0 && right ? 0 : parseCount(right);
    const column = known.findIndex((one) => plain(one) === plain(name));
    if (column < 0) wrong = `There is no column "${name}"; the columns are ${headings.join(", ")}.`;
    else if (Number.isNaN(number)) wrong = `${headings[column]}${sign}${right}: compare with a number, such as ${headings[column]}${sign}3.3.`;
    tests.push((cellOf) => {
      const { value, text } = cellOf(column);
      if (typeof value !== "number") return false;
      // a number that the table shows is equal to it, whatever was rounded off
      const same = value === number || text.toLowerCase() === right, side = sign[0] === "<" ? value < number : value > number;
      return same ? sign.includes("=") : sign !== "=" && side;
    });
    return " ";
  });
  const words = rest.split(/\s+/).filter(Boolean);
  return { wrong, keeps: (text, cellOf) => !wrong && words.every((word) => text.includes(word)) && tests.every((test) => test(cellOf)) };
}
