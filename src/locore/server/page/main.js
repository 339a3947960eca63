// The page: an example or a link to begin with, the run, and what belongs to its result.
import { compare, setKey } from "./api.js";
import { currentConstraint, setConstraint, startBuilder } from "./builder.js";
import { $, h } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { mistake, readFields, setFacts, startFields, writeFields } from "./fields.js";
import { drawKept, keep } from "./kept.js";
import { BadLink, copyLink, fromFragment } from "./link.js";
import { clearErrors, complain, say, showError } from "./mistakes.js";
import { findModel } from "./model.js";
import { beginProgress, endProgress, showProgress, status } from "./progress.js";
import { showResults } from "./results.js";

let model = null;
let running = null;
let shown = null; // what the results are of, as `written` gives it

function start() {
  $("example").addEventListener("change", () => showExample(EXAMPLES[$("example").value]));
  $("problem").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("run").disabled = false; // until now the browser would have sent the form itself
  $("cancel").addEventListener("click", () => running?.abort());
  $("link").addEventListener("click", giveLink);
  $("problem").addEventListener("input", compareWithShown);
  window.addEventListener("hashchange", fromLink);
  startFields();
  startBuilder(() => {
    say("constraint", "");
    compareWithShown();
  });
  listExamples(false);
  showFirst();
  fromLink();
  learnModel().catch(showError);
}

/** Those that this model can read; the one that is chosen stays. */
function listExamples(chats) {
  const chosen = $("example").value;
  const options = EXAMPLES.map(({ name, messages }, index) => (chats || !messages ? h("option", { value: index }, name) : null));
  $("example").replaceChildren(...options.filter(Boolean));
  $("example").value = chosen;
}

/** What the form says, whether or not it can be run. */
const written = () => JSON.stringify([readFields(), $("json").value]);

/** Say so if the results are of an earlier problem. */
function compareWithShown() {
  const stale = shown !== null && written() !== shown;
  if (stale && !running) status("");
  $("stale").hidden = !stale;
  $("results").classList.toggle("stale", stale);
}

function showFirst() {
  $("example").value = 0;
  showExample(EXAMPLES[0]);
}

function showExample({ about, ...problem }) {
  $("about").textContent = about;
  showProblem(problem);
}

function showProblem(problem) {
  clearErrors();
  writeFields(problem);
  setConstraint(problem.constraint);
  compareWithShown();
}

/** Fill in what the address says. */
function fromLink() {
  try {
    const problem = fromFragment(location.hash);
    if (problem === null) return;
    $("example").value = "";
    $("about").textContent = "From the link that you opened.";
    showProblem(problem);
  } catch (error) {
    if (!(error instanceof BadLink)) throw error;
    showFirst();
    say("general", "This link is damaged, so here is the first example instead.");
  }
}

async function giveLink() {
  clearErrors();
  const problem = readProblem();
  if (problem === null) return;
  const said = await copyLink(problem);
  if (!running) status(said);
}

/** Learn what the model can do, unless that is known. */
async function learnModel(signal) {
  if (model !== null) return;
  const facts = await findModel(signal);
  setFacts(facts);
  listExamples(facts.chat);
  model = facts.id;
}

/** What the form asks, or null if something has to be put right first. */
function readProblem() {
  const constraint = currentConstraint();
  if (constraint === null) return null;
  const wrong = mistake();
  if (wrong !== null) complain(...wrong);
  return wrong === null ? { ...readFields(), constraint } : null;
}

async function run() {
  if (running) return;
  clearErrors();
  setKey($("key").value);
  const asked = readProblem();
  if (asked === null) return;
  const text = written();
  running = new AbortController();
  busy(true);
  clearResults();
  let end = "";
  try {
    await learnModel(running.signal);
    const answer = await compare({ model, effort: "high", ...asked }, running.signal, showProgress);
    shown = text;
    showResult(asked, answer);
    end = `Done in ${(answer.sides.locore.seconds + answer.sides.masking.seconds).toFixed(1)} s of computing.`;
  } catch (error) {
    if (error.name === "AbortError") end = "Cancelled.";
    else showError(error);
  } finally {
    running = null;
    busy(false);
    endProgress(end);
  }
}

function showResult(asked, answer) {
  showResults($("results"), asked, answer, () => {
    $("keep").hidden = true;
    keep(asked, answer, () => {
      if ($("keep")) $("keep").hidden = false;
      $("run").focus();
    });
    status("Kept.");
  });
  drawKept({ asked, answer });
  compareWithShown();
  $("results").focus({ preventScroll: true });
  $("shown").scrollIntoView({ block: "nearest" });
}

/** Nothing is shown any more but what was kept. */
function clearResults() {
  shown = null;
  compareWithShown();
  drawKept(null);
  $("results").replaceChildren();
}

function busy(yes) {
  if (yes) beginProgress();
  $("run").setAttribute("aria-disabled", String(yes));
  $("cancel").hidden = !yes;
  $("results").setAttribute("aria-busy", String(yes));
}

start();
