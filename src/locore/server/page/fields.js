// The fields of the form beside the constraint: read, written, and checked before anything is sent.
import { $, h } from "./dom.js";

export const SAMPLERS = ["exact", "rejection", "twisted", "swor", "smc", "masked", "masked-is", "lcr", "cars"];
export const NUMBERS = ["max_tokens", "num_particles", "seed", "temperature", "top_p", "min_tokens"];
const CHOICES = ["sampler", "ending"];
const PARTICLES = 32; // as in `locore.generate`: many are slow where texts are long and the model is large
const WORDS = {
  text: { prompt: "The text begins", constraint: "and goes on so that", spaces: "Spaces count: what follows a prompt usually begins with one." },
  chat: { prompt: "The user says", constraint: "The answer is such that it", spaces: "Spaces count: an answer usually begins without one." },
};

// A string of `stop` as it stands in its line, and back.
const ESCAPES = [["\\", "\\\\"], ["\n", "\\n"], ["\t", "\\t"]];
const spelled = (text) => ESCAPES.reduce((made, [character, escape]) => made.replaceAll(character, escape), text);
const meant = (line) => line.replace(/\\([\\nt])/g, (_, letter) => ({ n: "\n", t: "\t" })[letter] ?? letter);

let readsChats = false;

export function startFields() {
  $("sampler").append(h("option", { value: "" }, "chosen by itself"), ...SAMPLERS.map((name) => h("option", { value: name }, name)));
  $("mode").addEventListener("change", showMode);
}

/** What this server allows. */
export function setFacts({ chat, most }) {
  readsChats = chat;
  for (const [name, value] of Object.entries(most)) $(name).max = value;
  showMode();
}

export const isChat = () => $("mode-chat").checked;

function showMode() {
  const words = WORDS[isChat() ? "chat" : "text"];
  $("mode").hidden = !readsChats && !isChat();
  $("system-field").hidden = !isChat();
  $("prompt-label").textContent = words.prompt;
  $("constraint-label").textContent = words.constraint;
  $("spaces").textContent = words.spaces;
}

/** Show a problem, but for its constraint. */
export function writeFields(problem) {
  const { prompt, messages } = problem;
  $(messages ? "mode-chat" : "mode-text").checked = true;
  $("prompt").value = prompt ?? messages.at(-1).content;
  $("system").value = messages?.length > 1 ? messages[0].content : "";
  for (const name of NUMBERS) $(name).value = problem[name] ?? "";
  $("num_particles").value = problem.num_particles ?? PARTICLES;
  for (const name of CHOICES) $(name).value = problem[name] ?? "";
  $("stop").value = [problem.stop ?? []].flat().map(spelled).join("\n");
  $("finished").checked = problem.finished ?? false;
  showMode();
}

/** What is shown, without the constraint; only where `mistake` finds none. */
export function readFields() {
  const user = { role: "user", content: $("prompt").value };
  const system = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  const found = isChat() ? { messages: [...system, user] } : { prompt: $("prompt").value };
  for (const name of NUMBERS) if ($(name).value !== "") found[name] = Number($(name).value);
  for (const name of CHOICES) if ($(name).value) found[name] = $(name).value;
  const stop = $("stop").value.split("\n").filter(Boolean).map(meant);
  if (stop.length) found.stop = stop;
  if ($("finished").checked) found.finished = true;
  return found;
}

/** The first number that cannot be right, and what is wrong with it; null if there is none. */
export function mistake() {
  for (const name of NUMBERS) {
    const { validity, min, max } = $(name);
    if (validity.badInput) return [name, "This is no number."];
    if (validity.rangeUnderflow) return [name, `At least ${min}.`];
    if (validity.rangeOverflow) return [name, `At most ${max}.`];
    if (validity.stepMismatch) return [name, "Only whole numbers."];
  }
  if (Number($("min_tokens").value) > Number($("max_tokens").value || Infinity)) return ["min_tokens", "This is more than “Tokens, at most”."];
  return null;
}
