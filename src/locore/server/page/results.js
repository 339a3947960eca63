// What came out: in words first, then texts, tokens and the circuit.
import { drawCircuit } from "./circuit.js";
import { DIVERSE, MASKING_FAILED, chance, cutMark, decimal, h, moreButton, percent, visible, whole } from "./dom.js";
import { tokensSection } from "./tokens.js";
import { beginning, joined } from "./words.js";

const LIKELIEST = [7, 5]; // texts that are listed at once, of Locore and then of masking
const FEW = [4, 3]; // the same on a narrow screen, and where no text stands out
const ENOUGH = 30; // independent draws, from which a verdict may rest on them

const MEANING = {
  trust: "Use the texts, and averages over them.",
  rough: "Use the texts; their probabilities may be off. More particles tell more.",
  "not judged": "Use the texts; how far their probabilities are off is not known. 128 particles or more would tell.",
  "do not trust": "Use the texts as examples only: likelier ones may be missing, and probabilities far off. Ask for more particles.",
  biased: "Use the texts as examples only: they are not distributed as the model would write them, and no weight says by how much.",
};

/** p(text | constraint); where it is not known, the share of the weight. */
export const probable = (row) => row.probability ?? row.locore;

/** Show an answer; `keep` is called if it is to be kept. */
export function showResults(place, asked, answer, keep) {
  place.replaceChildren(summary(asked, answer, keep), textsSection(asked, answer), tokensSection(answer), drawCircuit(answer.circuit));
}

export const verdict = ({ verdict: level }) => h("span", { class: `verdict ${level.replaceAll(" ", "-")}` }, capital(level));

function summary(asked, answer, keep) {
  const { locore, sides } = answer;
  const [often, how] = evidence(locore);
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "In short"),
    sides.masking.error ? h("p", { class: "error" }, MASKING_FAILED) : h("p", { class: "lead" }, point(asked, answer)),
    h(
      "dl",
      { class: "facts" },
      fact("Verdict", verdict(locore), MEANING[locore.verdict]),
      fact("p(constraint)", often, `So often does the model alone write a text that fits: ${how}`),
      fact("Effective sample size", ...sampleSize(answer)),
      fact("Masking is off by", ...divergence(answer)),
    ),
    h("details", {}, h("summary", {}, "All numbers"), numbers(locore)),
    h("button", { type: "button", class: "plain", id: "keep", onclick: keep }, "Keep for comparison"),
  );
}

function numbers(locore) {
  const { log_evidence_bounds: [least, most], zero_weights: zero } = locore;
  const refused = Object.values(zero).reduce((sum, share) => sum + share, 0);
  const bounds = [least === null ? "" : `at least ${decimal(least)}`, most === null ? "" : `at most ${decimal(most)}`].filter(Boolean);
  const rows = [
    ["Sampler", `${locore.sampler}, ${locore.guarantee}`],
    ["Seed", locore.seed],
    ["Particles", `${whole(locore.num_particles)}, with ${whole(locore.distinct_texts)} different texts`],
    ["log p(constraint), for certain", bounds.join(", ") || "not known"],
    ["Tail of the weights (Pareto k̂)", locore.pareto_k === null ? "not known" : decimal(locore.pareto_k)],
    ["Weight that was refused", percent(refused)],
    ["Next-token distributions", whole(locore.lm_tokens)],
    ["Seconds", `${decimal(locore.compile_seconds, 1)} of compiling, ${decimal(locore.seconds, 1)} in all`],
  ];
  return h("dl", { class: "report" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
}

const fact = (name, value, meaning) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, meaning));
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

/** The text about which the two differ most, in a sentence. */
function point(asked, { locore, texts, divergence, sides }) {
  const by = (better) => texts.reduce((best, row) => (better(row) > better(best) ? row : best));
  const over = by((row) => row.masking - probable(row));
  const under = by((row) => probable(row) - row.masking);
  const named = (row) => h("q", {}, joined(asked, row.text));
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

/** How often the model alone writes a text that fits, and how well that is known. */
export function evidence({ log_evidence: log, log_evidence_interval: [low, high], sampler }) {
  if (log === null) return ["not known", "this sampler does not estimate it."];
  const interval = low === null ? "" : low === high ? ", exactly" : `, 95 %: ${decimal(low)} to ${decimal(high)}`;
  return [chance(Math.exp(log)), `log p = ${decimal(log)} nats${interval}; sampler ${sampler}.`];
}

function sampleSize({ locore, judged_by_blocks: blocks, sides }) {
  if (sides.locore.exact) return ["not needed", "Every text that fits was found, so nothing is estimated from draws."];
  if (locore.ess === null) return ["not known", "A single block of particles cannot tell."];
  // Such a verdict rests on bounds that are certain.
  if (locore.verdict === "trust" && locore.ess < ENOUGH) return ["not needed", "Next to every text that fits was found."];
  if (blocks) return [whole(locore.ess), "So many independent draws would be worth as much, by how far independent blocks of particles lie apart."];
  return [`${whole(locore.ess)} of ${whole(locore.num_particles)}`, "So many independent draws would be worth as much as these particles."];
}

function divergence({ divergence: nats, divergence_error: error }) {
  if (nats === null) return ["not known", "Some of its texts, or the evidence, are missing."];
  const [value, margin] = [decimal(nats, 1), error === null ? "" : decimal(1.96 * error, 1)];
  const little = value === "0.0" && (margin === "" || margin === "0.0");
  return [
    little ? "less than 0.1 nats" : `${value}${margin && ` ± ${margin}`} nats`,
    "0 would be right. Kullback–Leibler divergence of masking’s law from p(text | constraint), estimated from its masks.",
  ];
}

/** The likeliest texts of Locore, then those of the rest that masking writes most. */
function listed(texts, [most, more]) {
  const likeliest = (side, rows) => [...rows].filter((row) => row[side]).sort((a, b) => b[side] - a[side]);
  const ours = texts.filter((row) => row.locore).sort((a, b) => probable(b) - probable(a)).slice(0, most);
  return [...ours, ...likeliest("masking", texts.filter((row) => !ours.includes(row))).slice(0, more)];
}

function textsSection(asked, { texts, other_texts: others, sides }) {
  const most = Math.max(...texts.map((row) => Math.max(row.masking, probable(row))));
  const known = !sides.masking.error;
  const bar = (value) => most < DIVERSE ? null : h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--share": Math.min(1, value / most) } }));
  const share = (side, value) => h("td", { class: side }, h("div", {}, bar(value), h("span", {}, side === "locore" ? chance(value) : percent(value))));
  const everyCut = texts.every((row) => row.cut); // then it is said once
  const line = (row) =>
    h("tr", {}, h("th", { scope: "row" }, h("span", { class: "text" }, visible(row.text) || "(nothing)"), row.cut && !everyCut ? cutMark() : null), known ? share("masking", row.masking) : null, share("locore", probable(row)));
  const rest = others.number
    ? h("tr", { class: "rest" }, h("th", { scope: "row" }, `${whole(others.number)} other texts`), known ? h("td", {}, percent(others.masking)) : null, h("td", {}, texts.some((row) => row.probability !== null) ? "the rest" : percent(others.locore)))
    : null;
  const first = listed(texts, most < DIVERSE || matchMedia("(max-width: 52rem)").matches ? FEW : LIKELIEST);
  const more = texts.filter((row) => !first.includes(row));
  const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Text"), known ? h("th", { scope: "col", class: "masking" }, "Masking") : null, h("th", { scope: "col", class: "locore" }, "Locore")));
  const extra = more.map(line);
  extra.forEach((row) => (row.hidden = true));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Which texts, and how often"),
    most < DIVERSE ? h("p", {}, "Many texts fit, and each is rare. These are some of them.") : null,
    h("p", { class: "note" }, beginning(asked), ". Masking: share of its draws, each of which counts as one. Locore: p(text | constraint), ",
      sides.locore.exact ? "exactly." : "the model’s probability of the text over the estimate of p(constraint)."),
    h("table", { class: "texts" }, head, h("tbody", {}, first.map(line), extra, rest)),
    texts.some((row) => row.cut) ? h("p", { class: "note" }, everyCut ? "The limit of tokens cut all of these texts off." : "… after a text: the limit of tokens cut it off.") : null,
    more.length ? moreButton(`Show ${more.length} more`, extra) : null,
  );
}
