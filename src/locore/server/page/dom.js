// Elements are made here and nowhere else. Children are nodes or text; text never becomes HTML.

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, number] of Object.entries(value)) element.style.setProperty(key, number);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const DIVERSE = 0.05; // no text is likelier: bars would be as long as each other, and say nothing
export const MASKING_FAILED = "Masking found no text that fits.";

/** After a text that the limit of tokens has cut off. */
export const cutMark = () =>
  h("span", { class: "cut", title: "Cut off by the limit of tokens" }, "…", h("span", { class: "hidden" }, " (cut off by the limit of tokens)"));

// What cannot be seen in a text, made visible.
export const visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");

export function percent(share) {
  if (share === 0) return "0";
  if (share < 0.0005) return "<\u202f0.1\u202f%";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u202f%`;
}

/** A probability, however small. */
export function chance(p) {
  if (p >= 0.0005 || p === 0) return percent(Math.min(p, 1));
  const times = 1 / p;
  if (times < 1e6) return `1 in ${whole(Number(times.toPrecision(2)))}`;
  const power = Math.floor(Math.log10(times));
  return h("span", {}, `1 in ${(times / 10 ** power).toFixed(1)} · 10`, h("sup", {}, power));
}

export const signed = (nats) => (Math.abs(nats) < 0.05 ? "0.0" : `${nats > 0 ? "+" : "−"}${Math.abs(nats).toFixed(1)}`);
export const decimal = (number, digits = 2) => number.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
export const whole = (number) => Math.round(number).toLocaleString("en-US");

/** A part of the results; on a narrow screen it is folded, so that the page stays short. */
export function folded(title, ...children) {
  const heading = h("h2", {}, title);
  if (!matchMedia("(max-width: 52rem)").matches) return h("section", { class: "card" }, heading, ...children);
  return h("details", { class: "card" }, h("summary", {}, heading), ...children);
}

/** A button that shows what is hidden, and then goes. */
export function moreButton(label, hidden) {
  return h("button", {
    type: "button",
    class: "plain",
    onclick: (event) => {
      hidden.forEach((element) => (element.hidden = false));
      const next = hidden[0];
      next.tabIndex = -1;
      next.focus();
      event.target.remove();
    },
  }, label);
}
