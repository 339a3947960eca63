// A problem as the fragment of an address, which browsers keep to themselves.
import { NUMBERS, SAMPLERS } from "./fields.js";

const OF_RECORDS = ["budget", "abstain_below"]; // of the form for records alone
const START = "#p=";

const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isNumber = (value) => typeof value === "number";
const CHECKS = {
  prompt: isText,
  messages: isChat,
  constraint: isObject,
  sampler: (value) => SAMPLERS.includes(value),
  ending: (value) => value === "eos",
  stop: (value) => Array.isArray(value) && value.every(isText),
  finished: (value) => value === true,
  ...Object.fromEntries([...NUMBERS, ...OF_RECORDS].map((name) => [name, isNumber])),
};

export function toFragment(problem) {
  const bytes = new TextEncoder().encode(JSON.stringify(problem));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return START + text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Put a problem into the address, and the address where it can be pasted from; what to say of it. */
export async function copyLink(problem) {
  history.replaceState(null, "", toFragment(problem));
  const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  return copied ? "The link is copied." : "The link is in the address bar.";
}

/** The problem of a fragment; throws BadLink where it is damaged, null where there is none. */
export function fromFragment(fragment) {
  if (fragment === "" || fragment === "#results") return null;
  try {
    const text = atob(fragment.slice(START.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const problem = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (fragment.startsWith(START) && isProblem(problem)) return problem;
  } catch {
    // It is told below.
  }
  throw new BadLink();
}

export class BadLink extends Error {}

function isProblem(found) {
  const good = isObject(found) && Object.entries(found).every(([name, value]) => Object.hasOwn(CHECKS, name) && CHECKS[name](value));
  return good && "constraint" in found && "prompt" in found !== "messages" in found;
}

/** What the form can show: one message of the user, perhaps after one of the system. */
function isChat(messages) {
  const roles = Array.isArray(messages) ? messages.map((message) => (isText(message?.content) ? message.role : null)).join() : "";
  return roles === "user" || roles === "system,user";
}
