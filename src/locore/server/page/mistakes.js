// What went wrong, in plain words at the place that it is about.
import { ServerError } from "./api.js";
import { $ } from "./dom.js";
import { NUMBERS } from "./fields.js";

const PLACES = [...NUMBERS, "prompt", "constraint", "sampler", "ending", "stop", "key"];
const firstClause = (message) => message.split(/; |\. /)[0];
// What the library says to programmers, for those who have this page alone.
const SAYS = {
  timeout: (message) => `${firstClause(message)}; ask for fewer tokens or particles.`,
  budget_exceeded: (message) => `${firstClause(message).replace(/\.$/, "")}; ask for fewer tokens, or for a simpler constraint.`,
  no_valid_sample: () => "no text that fits was found; ask for more particles, or choose another sampler.",
  no_chat_template: () => "this model reads no messages; let it go on from a text.",
};

/** Show an error of the server; others are thrown again. */
export function showError(error) {
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 401) {
    const first = $("key-field").hidden;
    $("key-field").hidden = false;
    return complain("key", first && !$("key").value ? "This server wants an API key." : error.message);
  }
  const asked = (error.param ?? "").split(".")[0];
  const place = asked === "messages" ? "prompt" : asked;
  complain(PLACES.includes(place) ? place : "general", plain(error, asked));
}

/** A message that does not name the field that it stands at. */
function plain({ message, code, param }, field) {
  const said = SAYS[code]?.(message) ?? message;
  const bare = param && said.startsWith(`${param}: `) ? said.slice(param.length + 2) : said;
  const sentence = field && bare.startsWith(`${field} `) ? `it${bare.slice(field.length)}` : bare.replace(/^Input should/, "it should");
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}

export function complain(place, message) {
  say(place, message);
  const field = { constraint: "add", general: "run" }[place] ?? place;
  const folded = $(field).closest("details");
  if (folded) folded.open = true;
  if (place !== "constraint") $(field).focus({ preventScroll: true });
  $(`${place}-error`).scrollIntoView({ block: "center" });
}

export function say(place, message) {
  $(`${place}-error`).textContent = message;
  const field = $(place);
  if (field?.tagName === "FIELDSET") field.classList.toggle("wrong", Boolean(message));
  else if (message) field?.setAttribute("aria-invalid", "true");
  else field?.removeAttribute("aria-invalid");
}

export const clearErrors = () => [...PLACES, "general"].forEach((place) => say(place, ""));
