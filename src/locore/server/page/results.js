// What came out: in words first, then texts, tokens and the circuit.
import { chance, decimal, h, moreButton, percent, visible, whole } from "./dom.js";
import { drawCircuit } from "./circuit.js";
import { tokensSection } from "./tokens.js";

const LONG = 48; // characters of a prompt that is quoted
const LIKELIEST = [7, 5]; // texts that are listed at once, of Locore and then of masking

const MEANING = {
  trust: "The weights agree with each other: take these probabilities as they stand.",
  rough: "Good enough for orientation; ask for more particles before you rely on a number.",
  "not judged": "Too few particles to judge themselves; ask for 128 or more.",
  "do not trust": "The weights contradict each other: these probabilities may be far off. Ask for more particles.",
  biased: "These texts fit, but are not distributed as the model’s own, and no weight says by how much.",
};

/** p(text | constraint); where it is not known, the share of the weight. */
const probable = (row) => row.probability ?? row.locore;

export function showResults(place, asked, answer) {
  place.replaceChildren(summary(asked, answer), textsSection(asked, answer), tokensSection(answer), drawCircuit(answer.circuit));
}

function summary(asked, answer) {
  const { locore, sides } = answer;
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "In short"),
    sides.masking.error ? h("p", { class: "error" }, `Masking found nothing: ${sides.masking.error}`) : h("p", { class: "lead" }, point(asked, answer)),
    h(
      "dl",
      { class: "facts" },
      fact("Verdict", h("span", { class: `verdict ${locore.verdict.replaceAll(" ", "-")}` }, capital(locore.verdict)), MEANING[locore.verdict]),
      fact("p(constraint)", ...evidence(locore)),
      fact("Effective sample size", ...sampleSize(answer)),
      fact("Masking is off by", ...divergence(answer)),
    ),
    h("details", {}, h("summary", {}, "The whole report"), h("pre", { class: "report", tabindex: "0" }, locore.report)),
  );
}

const fact = (name, value, meaning) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, meaning));
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

/** The text about which the two differ most, in a sentence. */
function point({ prompt }, { locore, texts, divergence, sides }) {
  const by = (better) => texts.reduce((best, row) => (better(row) > better(best) ? row : best));
  const over = by((row) => row.masking - probable(row));
  const under = by((row) => probable(row) - row.masking);
  const begins = prompt.length > LONG ? `…${prompt.slice(1 - LONG)}` : prompt;
  const named = (row) => h("q", {}, visible(begins + row.text));
  const often = Math.max(over.masking - probable(over), probable(under) - under.masking);
  if (locore.verdict === "do not trust") {
    return ["Masking writes ", named(over), ` in ${percent(over.masking)} of its texts. What the model’s own would be, these particles cannot say yet.`];
  }
  if (often < 0.05) {
    const close = divergence !== null && divergence < 0.1;
    if (close) return ["Masking is nearly right here: it hardly has to interfere, and both write what the model would."];
    return ["Both write many different texts, and no single one stands out; the tokens below show what masking does to them."];
  }
  const sentence = [
    ...(over.masking - probable(over) >= 0.02
      ? ["Masking writes ", named(over), ` in ${percent(over.masking)} of its texts; the model itself, where it fits the constraint, in `,
         h("b", {}, chance(probable(over))), ". "]
      : []),
    "The model’s own ", named(under), " is ", h("b", {}, chance(probable(under))), ` of the model’s texts that fit, and ${percent(under.masking)} of masking’s.`,
  ];
  return sides.locore.exact ? sentence : [...sentence, h("span", { class: "quiet" }, " The model’s shares are Locore’s estimates.")];
}

function evidence({ log_evidence: log, log_evidence_interval: [low, high], sampler }) {
  if (log === null) return ["not known", "This sampler does not estimate it."];
  const interval = low === null ? "" : low === high ? ", exactly" : `, 95 %: ${decimal(low)} to ${decimal(high)}`;
  return [chance(Math.exp(log)), `So often the model alone writes a text that fits. log p = ${decimal(log)} nats${interval}; sampler ${sampler}.`];
}

function sampleSize({ locore, judged_by_blocks: blocks, sides }) {
  if (locore.ess === null) return ["not known", "A single block of particles cannot tell."];
  const value = `${decimal(locore.ess, 1)} of ${whole(locore.num_particles)}`;
  if (sides.locore.exact) return [value, "Every text that fits was found; this only says how unequal their probabilities are."];
  if (blocks) return [value, "As much as so many independent draws would be worth, by how far independent blocks of particles lie apart."];
  return [value, "As much as so many independent draws would be worth."];
}

function divergence({ divergence: nats, divergence_error: error }) {
  if (nats === null) return ["not known", "Some of its texts, or the evidence, are missing."];
  const margin = error === null ? "" : ` ± ${decimal(1.96 * error, 1)}`;
  return [
    `${decimal(nats, 1)}${margin} nats`,
    "0 would be right. Kullback–Leibler divergence of masking’s law from p(text | constraint), estimated from its masks.",
  ];
}

/** The likeliest texts of Locore, then those of the rest that masking writes most. */
function listed(texts) {
  const likeliest = (side, rows) => [...rows].filter((row) => row[side]).sort((a, b) => b[side] - a[side]);
  const ours = [...texts].filter((row) => row.locore).sort((a, b) => probable(b) - probable(a)).slice(0, LIKELIEST[0]);
  return [...ours, ...likeliest("masking", texts.filter((row) => !ours.includes(row))).slice(0, LIKELIEST[1])];
}

function textsSection(asked, { texts, other_texts: others, sides }) {
  const most = Math.max(...texts.map((row) => Math.max(row.masking, probable(row))));
  const known = !sides.masking.error;
  const share = (side, value) =>
    h("td", { class: side }, h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--share": Math.min(1, value / most) } })), h("span", {}, side === "locore" ? chance(value) : percent(value)));
  const line = (row) =>
    h("tr", {}, h("th", { scope: "row" }, h("span", { class: "text" }, visible(row.text) || "(nothing)")), known ? share("masking", row.masking) : null, share("locore", probable(row)));
  const rest = others.number
    ? h("tr", { class: "rest" }, h("th", { scope: "row" }, `${whole(others.number)} other texts`), known ? h("td", {}, percent(others.masking)) : null, h("td", {}, texts.some((row) => row.probability !== null) ? "the rest" : percent(others.locore)))
    : null;
  const first = listed(texts);
  const more = texts.filter((row) => !first.includes(row));
  const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Text"), known ? h("th", { scope: "col", class: "masking" }, "Masking") : null, h("th", { scope: "col", class: "locore" }, "Locore")));
  const extra = more.map(line);
  extra.forEach((row) => (row.hidden = true));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Which texts, and how often"),
    h("p", { class: "note" }, "After ", h("q", {}, visible(asked.prompt)), ". Masking: share of its draws, each of which counts as one. Locore: p(text | constraint), ",
      sides.locore.exact ? "exactly." : "the model’s probability of the text over the estimate of p(constraint)."),
    h("table", { class: "texts" }, head, h("tbody", {}, first.map(line), extra, rest)),
    more.length ? moreButton(`Show ${more.length} more`, extra) : null,
  );
}
