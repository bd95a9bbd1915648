/* What the filter of the table of runs understands: words that a row must hold, and comparisons of a column with a number. */

const FILTER_HINT = "A row must hold every word. COLUMN<NUMBER compares a column, with <, <=, >, >= or =, such as loss<3.3, N>=1.2M or learning rate=0.001.";

/** {keeps: (text, cellOf) => whether a row stays, unread: words that look like a comparison but name no column or number}.

cellOf(column) is the {value, text} of a cell. */
function runsFilter(typed, headings) {
  const known = headings.map((name) => name.toLowerCase()), tests = [], unread = [];
  // the longest first, so that a name that ends another is not taken for it
  const names = [...known].sort((a, b) => b.length - a.length)
    .map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/ /g, "[ _]?"));
  const comparison = new RegExp(`(^|\\s)(${names.join("|")})\\s*(<=|>=|<|>|=)\\s*([^\\s<>=]+)(?=\\s|$)`, "g");
  const plain = (name) => name.replace(/[ _]/g, "");
  const rest = typed.toLowerCase().replace(comparison, (whole, before, name, sign, right) => {
    const number = Number(right) === 0 ? 0 : parseCount(right);
    if (Number.isNaN(number)) return whole;
    const column = known.findIndex((one) => plain(one) === plain(name));
    tests.push((cellOf) => {
      const { value, text } = cellOf(column);
      if (typeof value !== "number") return false;
      // a number that the table shows is equal to it, whatever was rounded off
      const same = value === number || text.toLowerCase() === right, side = sign[0] === "<" ? value < number : value > number;
      return same ? sign.includes("=") : sign !== "=" && side;
    });
    return " ";
  });
  const words = rest.split(/\s+/).filter(Boolean).filter((word) => {
    const compares = /.[<>=]|^[<>=]+$/.test(word) && !word.startsWith("<");
    if (compares) unread.push(word);
    return !compares;
  });
  return {
    unread,
    keeps: (text, cellOf) => words.every((word) => text.includes(word)) && tests.every((test) => test(cellOf)),
  };
}
