// A problem in words.
import { h, visible } from "./dom.js";
import { fromJson, kindOf } from "./kinds.js";

const LONG = 48; // characters of a prompt that is quoted

const quoted = (text) => `“${visible(text).replaceAll(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length))}”`;
const ending = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);

/** What the texts follow, in a few words. */
export function beginning({ prompt, messages }) {
  if (messages) return ["In answer to ", h("q", {}, visible(ending(messages.at(-1).content, LONG)))];
  return prompt ? ["After ", h("q", {}, visible(ending(prompt, LONG)))] : ["From the beginning"];
}

/** A text behind the prompt, as far as it is one text with it. */
export const joined = ({ prompt = "" }, text) => visible(ending(prompt, LONG) + text);

/** A constraint in one line. */
export function constraintInWords(constraint) {
  const { join, rows } = fromJson(constraint);
  if (rows.length === 0) return "anything";
  return rows.map((row) => (row.not ? `not: ${rowInWords(row)}` : rowInWords(row))).join(`; ${join} `);
}

function rowInWords(row) {
  const { name, fields } = kindOf(row);
  if (row.kind === "word_count") return numberOfWords(row.values);
  if (!row.values[fields[0].name] && fields[0].as === "lines") return `${name} nothing`;
  const main = row.values[fields[0].name] ?? "";
  const said = fields[0].as === "json" ? main.replace(/\s+/g, " ") : main.split("\n").map(quoted).join(", ");
  const more = fields.slice(1).filter((field) => row.values[field.name]);
  const also = more.map((field) => (field.as === "check" ? field.label : `${field.label.toLowerCase()} ${row.values[field.name]}`));
  return `${fields.length === 1 && row.kind === "other" ? "" : `${name} `}${said}${also.length ? ` (${also.join(", ")})` : ""}`;
}

function numberOfWords({ lo, hi }) {
  if (lo && hi) return lo === hi ? `has ${lo} words` : `has ${lo} to ${hi} words`;
  return lo ? `has at least ${lo} words` : hi ? `has at most ${hi} words` : "has any number of words";
}
