"use strict";
// Elements, numbers as text, and the theme.  Texts become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

// An element: element("p", {class: "note"}, "text", child).  Attributes that start with "on" are listeners.
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A text as nodes that never break a size ("120 KiB", "38.6 %") or an option ("--spill DIR") across lines.
function unbroken(text) {
  return text.split(/(\d[\d.,]* (?:[KMGT]iB|B|bytes|[µm]?s|%)(?!\w)|--[a-z][a-z-]*(?: [A-Z]+\b)?)/).filter(Boolean)
    .map((part) => (/^\d\S* |^--/.test(part) ? element("span", { class: "unbroken" }, part) : part));
}

function section(id, title, ...children) {
  return element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), ...children);
}

function labelled(text, control) {
  return element("label", {}, element("span", {}, text), control);
}

function select(options, onchange) {
  const node = element("select", { onchange: () => onchange(node.value) },
    options.map(([value, text]) => element("option", { value }, text)));
  return node;
}

function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

// -- numbers ------------------------------------------------------------------------------------------------------

function significant(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function formatBytes(count) {
  if (count === null || count === undefined) return "";
  if (Math.abs(count) < 1024) return `${Math.round(count)} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    count /= 1024;
    if (Math.abs(count) < 999.5) return `${significant(count)} ${unit}`;
  }
  return `${significant(count / 1024)} TiB`;
}

function formatExactBytes(count) {
  return Math.abs(count) < 1024 ? formatBytes(count) : `${formatBytes(count)} (${count.toLocaleString("en")} bytes)`;
}

function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds === 0) return "0 s";
  if (Math.abs(seconds) < 1e-3) return `${significant(seconds * 1e6)} µs`;
  if (Math.abs(seconds) < 1) return `${significant(seconds * 1e3)} ms`;
  return `${significant(seconds)} s`;
}

function formatDuration(seconds) {
  const all = Math.round(seconds), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
  if (all < 120) return formatSeconds(seconds);
  return hours ? `${hours.toLocaleString("en")} h ${minutes} min` : `${minutes} min ${all % 60} s`;
}

function formatCount(number) {
  if (number === null || number === undefined) return "";
  for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= factor * 0.9995) return `${significant(number / factor)} ${letter}`;
  }
  return Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(5)));
}

function formatShare(part, whole) {
  return whole ? `${(100 * part / whole).toFixed(1)} %` : "";
}

// A share of a baseline, which stands behind it: "+3.0 % over", "2.8 % less than".
function formatChange(change) {
  return change < 0 ? `${(-100 * change).toFixed(1)} % less than` : `+${(100 * change).toFixed(1)} % over`;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Values at round distances from `low` to `high`, about `count` of them.  `base` 1024 suits bytes.
function ticksBetween(low, high, count, base = 10) {
  const span = (high - low) / Math.max(count, 1);
  if (!(span > 0)) return [low];
  let step;
  if (base === 1024) {
    step = 2 ** Math.ceil(Math.log2(span));
  } else {
    const power = 10 ** Math.floor(Math.log10(span));
    step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= span * 0.999);
  }
  const marks = [];
  for (let value = Math.ceil(low / step) * step; value <= high * (1 + 1e-12); value += step) marks.push(value);
  return marks;
}

// -- theme --------------------------------------------------------------------------------------------------------

const onTheme = []; // functions that paint again when colours change

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const toggle = document.getElementById("theme");
  toggle.setAttribute("aria-pressed", String(name === "dark"));
  toggle.textContent = name === "dark" ? "Light" : "Dark";
  for (const paint of onTheme) paint();
}

function startTheme() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme;
  document.getElementById("theme").addEventListener("click", () => setTheme(current() === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  setTheme(dark.matches ? "dark" : "light");
  let screen = null;
  window.addEventListener("beforeprint", () => { screen = current(); setTheme("light"); });
  window.addEventListener("afterprint", () => { if (screen) setTheme(screen); });
}

// Calls `paint` now, when the width of `node` changes, and when the theme does.
function whenResized(node, paint) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth !== width) {
      width = node.clientWidth;
      if (width) paint();
    }
  }).observe(node);
  onTheme.push(() => { if (node.clientWidth) paint(); });
}

// `text` cut to about `room` pixels.
function shorten(text, room) {
  const letters = Math.floor(room / 6.1);
  if (text.length <= letters) return text;
  return letters < 4 ? "" : `${text.slice(0, letters - 1)}…`;
}
