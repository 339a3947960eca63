// The circuit as a trellis: a column of states for each position, and the share of each side on the arcs between them.
import { folded, h, percent, svg, whole } from "./dom.js";

const WIDTH = 760, GAP = 46, TOP = 34, EDGE = 34;
const WIDEST = 13; // of an arc that everything passes
const NAMED = 0.02; // shares from which an arc is named
const LETTER = 7; // pixels

export function drawCircuit(circuit) {
  const { nodes, edges, classes, vocab_size: vocabulary, positions, trellis, relaxed } = circuit;
  const parts = nodes === null ? "Read state by state" : `${whole(nodes)} nodes and ${whole(edges)} edges`;
  const size = `${parts} over ${positions} ${positions === 1 ? "position" : "positions"}; ` +
    `the constraint tells ${whole(classes)} classes of tokens apart among ${whole(vocabulary)}.`;
  return folded(
    "The constraint as a circuit",
    h("p", { class: "note" }, size, relaxed ? " It is a relaxation: finished texts are checked once more." : ""),
    trellis ? picture(trellis) : h("p", {}, "Too large to draw. Ask for fewer tokens or a simpler constraint to see it."),
  );
}

function picture({ columns, arcs }) {
  const places = layout(columns, arcs);
  const height = Math.max(...columns) * GAP + TOP + 20;
  const wide = Math.max(WIDTH, columns.length * 110);
  const at = (position, state) => ({
    x: EDGE + (position * (wide - 2 * EDGE)) / (columns.length - 1),
    y: TOP + (places[position][state] + 0.5) * ((height - TOP) / columns[position]),
  });
  const ends = (arc) => [at(arc.position, arc.source), at(arc.position + 1, arc.target)];
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": described(columns, arcs), vars: { "--width": `${wide}px` } },
    columns.map((_, position) => svg("text", { class: "column", x: at(position, 0).x, y: 14 }, heading(position, columns.length))),
    arcs.map((arc) => curve(...ends(arc), 0, 1, "possible", arc)),
    arcs.map((arc) => [side("masking", arc, ends(arc), arc.locore), side("locore", arc, ends(arc), arc.masking)]).flat(),
    columns.flatMap((count, position) => [...Array(count).keys()].map((state) => node(at(position, state), position === columns.length - 1))),
    labels(arcs, ends, (wide - 2 * EDGE) / (columns.length - 1)),
  );
  return h(
    "div",
    {},
    h("p", { class: "legend" }, h("span", { class: "key masking" }, "masking"), h("span", { class: "key locore" }, "Locore"),
      h("span", {}, "The wider a line, the more of the texts go there; thin lines are possible too. A double ring accepts.")),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Drawing of the circuit" }, drawing),
    h("details", {}, h("summary", {}, "The same as a table"), arcTable(arcs)),
  );
}

const heading = (position, count) => (position === 0 ? "start" : position === count - 1 ? "done" : `after ${position}`);

function described(columns, arcs) {
  const busiest = (side) => arcs.filter((arc) => arc[side] > 0.5).map((arc) => `token ${arc.position + 1}: ${arc.tokens}`).join("; ");
  return `${columns.length} columns of ${columns.join(", ")} states. Most of Locore’s weight passes ${busiest("locore") || "many ways"}; ` +
    `most of masking’s draws pass ${busiest("masking") || "many ways"}. The table below has all arcs.`;
}

/** For each column the rank of each state from the top: busy states in the middle of those that they come from. */
function layout(columns, arcs) {
  const places = [[0]];
  for (let position = 1; position < columns.length; position += 1) {
    const height = (state) => {
      const into = arcs.filter((arc) => arc.position === position - 1 && arc.target === state);
      const weight = (arc) => arc.locore + arc.masking + 0.01;
      const total = into.reduce((sum, arc) => sum + weight(arc), 0);
      return into.reduce((sum, arc) => sum + (weight(arc) * (places[position - 1][arc.source] + 0.5)) / columns[position - 1], 0) / total;
    };
    const order = [...Array(columns[position]).keys()].sort((a, b) => height(a) - height(b) || a - b);
    places.push(order.reduce((ranks, state, rank) => ((ranks[state] = rank), ranks), []));
  }
  return places;
}

function curve(from, to, offset, width, name, arc) {
  const bend = (to.x - from.x) / 2;
  const [y, z] = [from.y + offset, to.y + offset];
  return svg(
    "path",
    { class: name, d: `M${from.x} ${y}C${from.x + bend} ${y} ${to.x - bend} ${z} ${to.x} ${z}`, vars: { "stroke-width": width.toFixed(2) } },
    svg("title", {}, `${arc.tokens}: masking ${percent(arc.masking)}, Locore ${percent(arc.locore)}`),
  );
}

/** Both sides lie beside each other: masking above, Locore below. */
function side(name, arc, [from, to], other) {
  if (!arc[name]) return null;
  const width = Math.max(1.5, WIDEST * arc[name]);
  const shift = other ? (width / 2 + 0.5) * (name === "masking" ? -1 : 1) : 0;
  return curve(from, to, shift, width, name, arc);
}

function node({ x, y }, last) {
  const ring = svg("circle", { class: "state", cx: x, cy: y, r: 7 });
  return last ? svg("g", {}, ring, svg("circle", { class: "state", cx: x, cy: y, r: 4 })) : ring;
}

/** The names of busy arcs, the busiest first, each where it covers no other; the rest are in the table. */
function labels(arcs, ends, gap) {
  const busy = (arc) => Math.max(arc.locore, arc.masking);
  const placed = [];
  const free = (box) => placed.every((other) => Math.abs(other.x - box.x) > (other.wide + box.wide) / 2 || Math.abs(other.y - box.y) > 13);
  return arcs
    .filter((arc) => busy(arc) >= NAMED)
    .sort((a, b) => busy(b) - busy(a))
    .map((arc) => {
      const name = short(arc.tokens, Math.floor((gap - 26) / LETTER));
      const box = boxes(arc, ends(arc), name.length * LETTER).find(free);
      if (!box) return null;
      placed.push(box);
      return svg("text", { class: "arc", x: box.x, y: box.y }, name);
    });
}

/** Where a name may stand: before the end of its arc, after the beginning, in the middle; on the side that the arc does not come from. */
function boxes(arc, [from, to], wide) {
  const away = (here, there, x) => {
    const above = there.y >= here.y;
    const half = WIDEST * (arc.locore && arc.masking ? (above ? arc.masking : arc.locore) : Math.max(arc.masking, arc.locore) / 2);
    return { x, y: above ? here.y - half - 6 : here.y + half + 14, wide };
  };
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 + 4, wide };
  return [away(to, from, to.x - 13 - wide / 2), away(from, to, from.x + 13 + wide / 2), middle];
}

function short(tokens, most) {
  if (tokens.startsWith("any but")) return "any other";
  if (tokens.length <= most) return tokens;
  const first = tokens.match(/^"(?:[^"\\]|\\.)*"/)?.[0] ?? tokens;
  return first.length + 2 <= most ? `${first} …` : `${first.slice(0, most - 1)}…`;
}

function arcTable(arcs) {
  const cell = (value) => h("td", {}, value);
  const row = (arc) =>
    h("tr", {}, cell(arc.position + 1), cell(`${arc.source + 1} → ${arc.target + 1}`), h("td", { class: "code" }, arc.tokens), cell(percent(arc.masking)), cell(percent(arc.locore)));
  const head = ["Position", "States", "Tokens", "Masking", "Locore"].map((name) => h("th", { scope: "col" }, name));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Arcs" }, h("table", { class: "arcs" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, arcs.map(row))));
}
