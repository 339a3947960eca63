// A record out of a text: its fields as rows or as JSON Schema, and each with its probability.
import { extract, setKey } from "./api.js";
import { $, decimal, h, whole } from "./dom.js";
import { BadLink, copyLink, fromFragment } from "./link.js";
import { say } from "./mistakes.js";
import { findModel } from "./model.js";
import { beginProgress, endProgress, status } from "./progress.js";
import { verdict } from "./results.js";
import { KINDS, rowsOf, schemaOf } from "./rows.js";

const NUMBERS = ["max_tokens", "budget", "abstain_below", "seed"];
const PLACES = [...NUMBERS, "prompt", "constraint", "key", "general"];
const PROMPT = "Please send me a lamp and one more, it is not urgent.\nAs JSON: ";

let facts = null;
let running = null;
let shown = null; // the fields of the answer
let rows = [
  { name: "item", kind: "choice", values: "lamp, chair, book", optional: false },
  { name: "amount", kind: "whole", values: "", optional: false },
  { name: "express", kind: "boolean", values: "", optional: true },
];

/** Is a field left out? As `locore.parse` has it: one that is not known counts as 0. */
export const isLeftOut = ({ probability }, level) => level !== null && (probability ?? 0) < level;

function fromRows() {
  $("constraint").value = JSON.stringify(schemaOf(rows), null, 2);
  say("constraint", "");
}

function draw() {
  $("fields").replaceChildren(...rows.map(drawRow));
  fromRows();
}

function drawRow(row, index) {
  const set = (name, value) => {
    row[name] = value;
    fromRows();
  };
  const options = Object.entries(KINDS).map(([kind, { name }]) => h("option", { value: kind }, name));
  const change = (event) => {
    row.kind = event.target.value;
    draw();
    $("fields").children[index].querySelector("select").focus();
  };
  const kind = h("select", { "aria-label": `Kind of field ${index + 1}`, onchange: change }, options);
  kind.value = row.kind;
  const values = { class: "values", "aria-label": `Values of field ${index + 1}, with commas between`, value: row.values, oninput: (event) => set("values", event.target.value) };
  const remove = () => {
    rows.splice(index, 1);
    draw();
    $("add").focus();
  };
  return h(
    "li",
    {},
    h("input", { "aria-label": `Name of field ${index + 1}`, value: row.name, spellcheck: "false", oninput: (event) => set("name", event.target.value) }),
    kind,
    h("button", { type: "button", class: "plain remove", "aria-label": `Remove field ${index + 1}`, onclick: remove }, "×"),
    row.kind === "choice" ? h("input", values) : null,
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: row.optional, onchange: (event) => set("optional", event.target.checked) }), " may be missing"),
  );
}

function complain(place, message) {
  say(place, message);
  const field = $(place) ?? $("run");
  const folded = field.closest("details");
  if (folded) folded.open = true;
  field.focus();
}

/** What the form says, or null where something has to be put right first. */
function written() {
  const asked = { prompt: $("prompt").value };
  for (const name of NUMBERS) {
    const { value, validity } = $(name);
    if (!validity.valid) return complain(name, validity.badInput ? "This is no number." : $(name).validationMessage);
    if (value !== "") asked[name] = Number(value);
  }
  try {
    asked.constraint = { type: "json_schema", schema: JSON.parse($("constraint").value) };
  } catch (error) {
    return complain("constraint", `This is no JSON: ${error.message}`);
  }
  return asked;
}

/** A model that reads chats is asked as a user asks. */
function request({ prompt, ...rest }) {
  const asked = facts.chat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  return { ...asked, ...rest, model: facts.id, return_fields: true };
}

async function run() {
  if (running) return;
  PLACES.forEach((place) => say(place, ""));
  setKey($("key").value);
  running = new AbortController();
  busy(true);
  let end = "";
  try {
    await learnModel(running.signal);
    const asked = written();
    if (asked) {
      const { locore } = await extract(request(asked), running.signal);
      shown = locore.record;
      drawResults();
      $("results").focus();
      end = `Done: ${whole(locore.lm_tokens)} LM tokens, ${decimal(locore.seconds, 1)} s.`;
    }
  } catch (error) {
    if (error.name === "AbortError") end = "Cancelled.";
    else showError(error);
  } finally {
    running = null;
    busy(false, end);
  }
}

async function giveLink() {
  PLACES.forEach((place) => say(place, ""));
  const asked = written();
  if (!asked) return;
  const said = await copyLink(asked);
  if (!running) status(said);
}

/** Fill in what the address says. */
function fromLink() {
  try {
    const asked = fromFragment(location.hash);
    if (asked !== null) show(asked);
  } catch (error) {
    if (!(error instanceof BadLink)) throw error;
    say("general", "This link is damaged, so here is the example instead.");
  }
}

function show({ prompt, constraint, ...rest }) {
  $("prompt").value = prompt ?? "";
  for (const name of NUMBERS) $(name).value = rest[name] ?? "";
  const { schema = {} } = constraint;
  rows = rowsOf(schema) ?? [];
  draw();
  $("constraint").value = JSON.stringify(schema, null, 2);
  $("schema-details").open = !rows.length;
}

function showError(error) {
  if (error.status === undefined) throw error;
  if (error.status === 401) $("key-field").hidden = false;
  const asked = error.status === 401 ? "key" : (error.param ?? "").split(".")[0];
  complain(PLACES.includes(asked) ? asked : "general", error.message);
}

function busy(yes, end = "") {
  if (yes) beginProgress();
  else endProgress(end);
  $("run").setAttribute("aria-disabled", String(yes));
  $("cancel").hidden = !yes;
  $("results").setAttribute("aria-busy", String(yes));
}

function drawResults() {
  const level = $("abstain_below").value === "" ? null : Number($("abstain_below").value);
  const fields = Object.values(shown.fields);
  const out = fields.filter((field) => isLeftOut(field, level)).length;
  $("results").replaceChildren(
    h(
      "section",
      { class: "card" },
      h("h2", {}, "The record, field by field"),
      h("p", {}, out ? `${out} of ${fields.length} fields left out: less probable than ${level}, or unknown.` : `All ${fields.length} fields kept.`),
      h("ol", { class: "record" }, fields.map((field) => drawField(field, isLeftOut(field, level)))),
      h("p", { class: "note" }, "Verdict on the run: ", verdict(shown), ". ", shown.note),
    ),
    h("details", { class: "card" }, h("summary", {}, h("h2", {}, "The most probable record as a whole")), h("pre", { class: "code" }, JSON.stringify(shown.value, null, 2))),
  );
}

const spelled = ({ present, value }) => (present ? JSON.stringify(value) : "missing");

function drawField(field, isOut) {
  const { pointer, probability, interval, alternatives } = field;
  const ends = interval.map((end) => decimal(end));
  const said = probability === null ? `unknown, ${ends.join(" to ")}` : `${decimal(probability)} (95 %: ${ends.join(" to ")})`;
  const others = alternatives.slice(0, 8).map((one) => h("li", {}, `${spelled(one)}: ${decimal(one.probability)}`));
  return h(
    "li",
    { class: isOut ? "out" : "kept", vars: { "--share": probability ?? 0 } },
    h("div", { class: "line" }, h("span", {}, pointer.slice(1) || "value"), isOut ? h("span", { class: "tag" }, "left out") : null),
    h("div", { class: "line" }, h("span", { class: "value" }, spelled(field)), h("span", {}, said)),
    others.length && probability !== null ? h("details", {}, h("summary", {}, `Or else (${alternatives.length})`), h("ul", {}, others)) : null,
  );
}

/** Learn what the model can do, and what this server allows. */
async function learnModel(signal) {
  facts ??= await findModel(signal);
  for (const name of NUMBERS) if (facts.most[name]) $(name).max = facts.most[name];
}

function start() {
  $("prompt").value = PROMPT;
  $("problem").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("run").disabled = false; // until now the browser would have sent the form itself
  $("cancel").addEventListener("click", () => running?.abort());
  $("link").addEventListener("click", giveLink);
  window.addEventListener("hashchange", fromLink);
  $("add").addEventListener("click", () => {
    rows.push({ name: "", kind: "text", values: "", optional: false });
    draw();
    $("fields").lastElementChild.querySelector("input").focus();
  });
  $("abstain_below").addEventListener("input", () => shown && $("abstain_below").validity.valid && drawResults());
  draw();
  fromLink();
  learnModel().catch(showError);
}

start();
