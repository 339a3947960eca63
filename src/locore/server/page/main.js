// The form: examples, the run, its errors at the places that they are about.
import { ServerError, compare, modelName, setKey } from "./api.js";
import { currentConstraint, setConstraint, startBuilder } from "./builder.js";
import { $, h } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { showResults } from "./results.js";

const SAMPLERS = ["exact", "rejection", "twisted", "swor", "smc", "masked", "masked-is", "lcr", "cars", "mcmc"];
const NUMBERS = ["max_tokens", "num_particles", "seed", "temperature", "top_p", "min_tokens"];
const PLACES = [...NUMBERS, "prompt", "constraint", "sampler", "ending", "key"];
const PARTICLES = 512;

let model = null;
let running = null;

function start() {
  $("example").append(...EXAMPLES.map(({ name }, index) => h("option", { value: index }, name)));
  $("sampler").append(h("option", { value: "" }, "chosen by itself"), ...SAMPLERS.map((name) => h("option", { value: name }, name)));
  $("example").addEventListener("change", () => showExample(EXAMPLES[$("example").value]));
  $("problem").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("problem").addEventListener("input", outdated);
  startBuilder(() => say("constraint", ""));
  showExample(EXAMPLES[0]);
  findModel().catch(showError);
}

/** What is shown is of an earlier problem. */
function outdated() {
  if ($("results").querySelector(".verdict")) $("results").classList.add("stale");
}

/** Nothing is shown any more. */
function clearResults() {
  $("results").classList.remove("stale");
  $("results").replaceChildren();
}

function showExample({ about, prompt, constraint, ...settings }) {
  clearErrors();
  outdated();
  $("about").textContent = about;
  $("prompt").value = prompt;
  for (const name of NUMBERS) $(name).value = settings[name] ?? "";
  $("num_particles").value = settings.num_particles ?? PARTICLES;
  $("ending").value = settings.ending ?? "";
  $("sampler").value = "";
  setConstraint(constraint);
}

async function findModel() {
  model = await modelName();
  $("model").textContent = `Model: ${model}`;
}

/** What is asked, or null if something in the form has to be put right first. */
function problem() {
  const constraint = currentConstraint();
  if (constraint === null) return null;
  const asked = { model, prompt: $("prompt").value, constraint, effort: "high" };
  for (const name of NUMBERS) {
    if ($(name).validity.badInput) {
      complain(name, "This is no number.");
      return null;
    }
    if ($(name).value !== "") asked[name] = Number($(name).value);
  }
  for (const name of ["sampler", "ending"]) if ($(name).value) asked[name] = $(name).value;
  return asked;
}

async function run() {
  if (running) return;
  clearErrors();
  setKey($("key").value);
  running = new AbortController();
  try {
    if (model === null) await findModel();
    const asked = problem();
    if (asked === null) return;
    clearResults();
    busy(true);
    const answer = await compare(asked, running.signal);
    showResults($("results"), asked, answer);
    status(`Done in ${((answer.sides.locore.seconds ?? 0) + answer.sides.masking.seconds).toFixed(1)} s of computing.`);
    $("results").focus({ preventScroll: true });
    $("results").scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (error.name === "AbortError") status("Stopped.");
    else showError(error);
  } finally {
    running = null;
    busy(false);
  }
}

function busy(yes) {
  $("run").setAttribute("aria-disabled", String(yes));
  $("stop").hidden = !yes;
  $("results").setAttribute("aria-busy", String(yes));
  if (yes) status("Sampling both ways …");
  else if ($("status").textContent.startsWith("Sampling")) status("");
}

function showError(error) {
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 401) {
    const first = $("key-field").hidden;
    $("key-field").hidden = false;
    return complain("key", first && !$("key").value ? "This server wants an API key." : error.message);
  }
  const plain = error.param && error.message.startsWith(`${error.param}: `) ? error.message.slice(error.param.length + 2) : error.message;
  const place = (error.param ?? "").split(".")[0];
  const label = document.querySelector(`label[for="${PLACES.includes(place) ? place : "none"}"]`)?.textContent;
  const named = label && plain.startsWith(`${place} `) ? `${label}: ${plain.slice(place.length + 1)}` : plain;
  const message = named.charAt(0).toUpperCase() + named.slice(1);
  complain(PLACES.includes(place) ? place : "general", message);
}

function complain(place, message) {
  say(place, message);
  const field = { constraint: "add", general: "run" }[place] ?? place;
  const folded = $(field).closest("details");
  if (folded) folded.open = true;
  if (place !== "constraint") $(field).focus({ preventScroll: true });
  $(`${place}-error`).scrollIntoView({ block: "center" });
}

function say(place, message) {
  $(`${place}-error`).textContent = message;
  const field = $(place);
  if (field?.tagName === "FIELDSET") field.classList.toggle("wrong", Boolean(message));
  else if (message) field?.setAttribute("aria-invalid", "true");
  else field?.removeAttribute("aria-invalid");
}

const clearErrors = () => [...PLACES, "general"].forEach((place) => say(place, ""));
const status = (message) => ($("status").textContent = message);

start();
