// Elements, figures and charts. Text is only ever set as text, never parsed as markup.

let locale;
let timeZone;

function setLanguage(context) {
  locale = context.locale;
  timeZone = context.timeZone;
}

// Make an element; children are elements or text, properties are set as they are.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function formatCount(value) {
  return value.toLocaleString(locale);
}

function formatBytes(value) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const digits = unit && Math.abs(size) < 100 ? 1 : 0;
  return `${size.toLocaleString(locale, { maximumFractionDigits: digits })} ${units[unit]}`;
}

function formatDay(time, options = { year: "numeric", month: "short", day: "numeric" }) {
  return new Date(time).toLocaleDateString(locale, { timeZone, ...options });
}

function countOf(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

// Figures in large type: pairs of a value and its name.
function makeFigures(pairs) {
  const figures = pairs.map(([value, name]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value)),
  );
  return make("dl", { className: "figures" }, figures);
}

function makeSection(title, ...children) {
  return make("section", {}, make("h2", {}, title), ...children);
}

// Bars with a name and a value each, on one scale.
function makeBars(title, counts) {
  const most = Math.max(1, ...counts.map(([, count]) => count));
  const rows = counts.map(([name, count]) => {
    const bar = make("div", { className: "bar" });
    bar.style.width = `${(100 * count) / most}%`;
    const label = make("th", { scope: "row", title: name }, name);
    const value = make("td", { className: "number" }, formatCount(count));
    return make("tr", {}, label, make("td", { className: "track" }, bar), value);
  });
  return makeSection(title, make("table", { className: "bars" }, make("tbody", {}, rows)));
}

// Columns over time: points with a value and a text each, and the labels of both ends.
function makeColumns(points, first, last) {
  const most = Math.max(1, ...points.map(({ value }) => value));
  const columns = points.map(({ value, text }) => {
    const fill = make("div", { className: "bar" });
    fill.style.height = `${(100 * value) / most}%`;
    return make("div", { className: "column", title: text }, fill);
  });
  const label = points.map(({ text }) => text).join("; ");
  const plot = make("div", { className: "columns", role: "img", ariaLabel: label }, columns);
  const scale = make(
    "p",
    { className: "scale dim" },
    make("span", {}, first),
    make("span", {}, last),
  );
  return [make("p", { className: "dim" }, `most: ${formatCount(most)}`), plot, scale];
}

function makeButton(text, run, className = "") {
  const button = make("button", { type: "button", className }, text);
  button.addEventListener("click", run);
  return button;
}
