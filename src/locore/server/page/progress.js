// What happens while a run is going. Its state is told to screen readers too; what counts up can be read at any time.
import { $, whole } from "./dom.js";

const PHASES = { compiling: "Compiling the constraint", sampling: "Locore samples", masking: "Masking samples" };

let timer = null;
let begun = 0;
let spent = 0;

export function beginProgress() {
  [begun, spent] = [Date.now(), 0];
  status("Starting");
  timer = setInterval(count, 1000);
}

/** What the server has told. */
export function showProgress({ state, position, phase, lm_tokens: lmTokens = 0 }) {
  spent = lmTokens;
  status(state === "queued" ? `Waiting: ${position === 1 ? "next" : `number ${position}`} in the queue` : PHASES[phase] ?? "Running");
  count();
}

/** It is over; `message` says how. */
export function endProgress(message) {
  clearInterval(timer);
  $("progress").textContent = "";
  status(message);
}

function count() {
  const seconds = Math.round((Date.now() - begun) / 1000);
  $("progress").textContent = [spent ? `${whole(spent)} LM tokens` : null, `${seconds} s`].filter(Boolean).join(", ");
}

/** Only what is new is written, for each change is read out. */
export function status(message) {
  if ($("status").textContent !== message) $("status").textContent = message;
}
