// Sequences of both sides, each token coloured by how far its side moved it.
import { DIVERSE, MASKING_FAILED, cutMark, decimal, folded, h, moreButton, percent, signed, visible, whole } from "./dom.js";

const FULL = 6; // nats of the strongest colour
const FIRST = 6;

const ABOUT = {
  masking: [
    "Each draw counts as one. Below a token: log q(token | before) − log p(token | before), exactly, where q is the law of masking: ",
    "all allowed tokens rise alike, by −log of the model’s probability of all of them together.",
  ],
  locore: [
    "Each particle counts by its weight, and stands for texts that were not drawn too: its share is no probability of its text. Below a token: log p(token | before, constraint) − log p(token | before). ",
  ],
};
const ESTIMATED =
  "The first is estimated: the share of the weight of the particles that begin alike. It is left out (·) where they know it no better than ±35 %.";
const EXACT = "Exact, for every sequence was enumerated.";

export function tokensSection({ sides, locore }) {
  return folded(
    "Particles, token by token",
    h("p", { class: "note" }, "By how many nats each way moves a token from what the model would have said there. ",
      locore.log_evidence === null ? "" : `Given the constraint, the numbers of every text add up to the same${sides.locore.exact ? "" : ", but for the error of the estimates"}: −log p(constraint) = ${decimal(-locore.log_evidence, 1)}. Masking does not know what is to come, and pays late.`),
    legend(),
    h("div", { class: "sides" }, side("masking", "Masking", sides.masking), side("locore", "Locore", sides.locore)),
  );
}

function legend() {
  const steps = [-6, -3, 0, 3, 6].map((nats) => h("span", { class: "token" }, h("span", { class: "chip", ...tint(nats) }, signed(nats))));
  return h("p", { class: "legend", "aria-hidden": "true" }, h("span", {}, "less likely"), steps, h("span", {}, "more likely"));
}

function side(name, title, { error, sequences, other_sequences: others, num_particles: number, lm_tokens: cost, exact }) {
  if (error) return h("div", { class: name }, h("h3", {}, title), h("p", { class: "error" }, MASKING_FAILED));
  const most = Math.max(...sequences.map(({ share }) => share));
  const items = sequences.map((sequence) => item(name, sequence, most < DIVERSE ? null : most));
  items.slice(FIRST).forEach((element) => (element.hidden = true));
  const about = name === "locore" ? [...ABOUT.locore, exact ? EXACT : ESTIMATED] : ABOUT.masking;
  return h(
    "div",
    { class: name },
    h("h3", {}, title),
    h("p", { class: "note" }, about),
    h("ol", { class: "sequences" }, items),
    items.length > FIRST ? moreButton(`Show ${items.length - FIRST} more`, items.slice(FIRST)) : null,
    h("p", { class: "quiet small" }, `${others ? `${whole(others)} other sequences. ` : ""}${whole(number)} particles, ${whole(cost)} next-token distributions.`),
  );
}

function item(name, { tokens, share, draws, weighted_share: weighted, cut }, most) {
  const total = tokens.some(({ shift }) => shift === null) ? null : tokens.reduce((sum, { shift }) => sum + shift, 0);
  const counted = name === "masking" ? `${draws} ${draws === 1 ? "draw" : "draws"}; weighted, they would count ${percent(weighted)}` : draws > 1 ? `${draws} particles` : "";
  return h(
    "li",
    {},
    h("div", { class: "share" }, h("b", {}, percent(share)), most === null ? null : h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--share": share / most } }))),
    h("div", { class: "tokens" }, tokens.map(token), cut ? cutMark() : null, total === null ? null : h("span", { class: "sum" }, `= ${decimal(total, 1)}`)),
    counted ? h("p", { class: "quiet small" }, counted) : null,
  );
}

function token({ text, end, log_prob: log, shift }) {
  const said = log === null ? "" : `log p(token | before) = ${decimal(log)}`;
  return h(
    "span",
    { class: end ? "token end" : "token", title: said },
    h("span", { class: "chip", ...tint(shift) }, end ? "end" : visible(text) || "∅"),
    h("span", { class: "shift" }, shift === null ? "·" : signed(shift)),
  );
}

function tint(shift) {
  if (shift === null || Math.abs(shift) < 0.05) return {};
  return { "data-moved": shift > 0 ? "up" : "down", vars: { "--strength": Math.min(Math.abs(shift) / FULL, 1).toFixed(3) } };
}
