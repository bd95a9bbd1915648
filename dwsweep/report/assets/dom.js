/* Elements of the page and files to save. Text from data goes in as text nodes and attribute values, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** <tag> with attributes; a function is a listener. */
function el(tag, attributes, ...children) { return fill(document.createElement(tag), attributes, children); }

function svg(tag, attributes, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

function button(label, click, attributes) {
  return el("button", { type: "button", click, ...attributes }, label);
}

/** Hand a text to the browser as a file. */
function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function saveCsv(name, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  save(name, rows.map((row) => row.map(cell).join(",") + "\n").join(""), "text/csv");
}

/** A drawing as a file of its own: what the style sheet gives it is written into it. */
function saveSvg(name, drawing) {
  const copy = drawing.cloneNode(true), from = drawing.querySelectorAll("*"), to = copy.querySelectorAll("*");
  const styled = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"];
  from.forEach((node, k) => {
    const style = getComputedStyle(node);
    styled.forEach((key) => to[k].setAttribute(key, style.getPropertyValue(key)));
    to[k].removeAttribute("class");
    to[k].removeAttribute("style");
  });
  const [, , width, height] = drawing.getAttribute("viewBox").split(" ");
  const ground = getComputedStyle(document.body).backgroundColor;
  copy.prepend(svg("rect", { width, height, fill: ground }));
  fill(copy, { xmlns: SVG, width, height, "font-family": "sans-serif" }, []);
  save(name, new XMLSerializer().serializeToString(copy), "image/svg+xml");
}

const PAPER = 700; // px, so that the letters of a drawing are as large on paper as those around it

/** Draw into a box whenever its width changes, and for paper. */
function drawnIn(box, draw) {
  let width = 0;
  const redraw = () => {
    width = box.clientWidth;
    if (width > 0) draw(width);
  };
  new ResizeObserver(() => { if (Math.abs(box.clientWidth - width) > 1) redraw(); }).observe(box);
  addEventListener("beforeprint", () => { if (box.clientWidth > 0) draw(PAPER); });
  addEventListener("afterprint", redraw);
  return redraw;
}
