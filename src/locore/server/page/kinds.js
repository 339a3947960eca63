// The kinds of conditions that have a form of their own, and how each is written as JSON. What has no form is kept as JSON.

const text = (name, label) => ({ name, label, as: "text" });
const lines = (name, label) => ({ name, label, as: "lines" });
const number = (name, label) => ({ name, label, as: "number" });
const check = (name, label) => ({ name, label, as: "check" });
const CASE = check("ignore_case", "ignore case");
const WORDS = check("words", "whole words");

export const KINDS = {
  ban: { name: "does not contain any of", fields: [lines("phrases", "Phrases, one a line"), WORDS, CASE] },
  contains: { name: "contains", fields: [text("text", "Text"), number("at_least", "Times, at least"), WORDS, CASE] },
  starts_with: { name: "starts with", fields: [text("text", "Text"), CASE] },
  ends_with: { name: "ends with", fields: [text("text", "Text"), CASE] },
  choice: { name: "is one of", fields: [lines("texts", "Whole texts, one a line")] },
  regex: { name: "matches the pattern", fields: [text("pattern", "Regular expression for the whole text"), CASE] },
  json_schema: { name: "is JSON valid for", fields: [{ name: "schema", label: "JSON Schema", as: "json" }] },
  word_count: { name: "has so many words", fields: [number("lo", "At least"), number("hi", "At most")] },
};
export const OTHER = { name: "other, as JSON", fields: [{ name: "json", label: "A constraint as JSON", as: "json" }] };
export const kindOf = (row) => KINDS[row.kind] ?? OTHER;

export class BadCondition extends Error {
  constructor(row, message) {
    super(message);
    this.row = row;
  }
}

export const EMPTY = { ban: { phrases: "" }, json_schema: { schema: '{"type": "object"}' } };
export const newRow = (kind = "contains") => ({ kind, not: false, values: { ...EMPTY[kind] } });

/** The constraint of the builder's rows; throws BadCondition. */
export function toJson({ join, rows }) {
  const parts = rows.map((row, index) => {
    const plain = rowToJson(row, index);
    return row.not ? { type: "not", of: plain } : plain;
  });
  if (parts.length === 0) return { type: "true" };
  return parts.length === 1 ? parts[0] : { type: join, of: parts };
}

/** Rows that say the same as a constraint. */
export function fromJson(constraint) {
  const { type, of } = constraint;
  if (same(constraint, { type: "true" })) return { join: "and", rows: [] };
  const joined = (type === "and" || type === "or") && Array.isArray(of) && of.length > 1 && same(constraint, { type, of });
  return { join: joined ? type : "and", rows: (joined ? of : [constraint]).map(rowOf) };
}

function rowOf(part) {
  const not = same(part, { type: "not", of: part?.of });
  const inner = not ? part.of : part;
  const kind = inner?.type;
  if (Object.hasOwn(KINDS, kind)) {
    const values = Object.fromEntries(
      KINDS[kind].fields.filter(({ name }) => name in inner).map((field) => [field.name, shown(field, inner[field.name])]),
    );
    const row = { kind, not, values };
    try {
      if (same(rowToJson(row, 0), inner)) return row;
    } catch {
      // It has no form.
    }
  }
  return { kind: "other", not, values: { json: JSON.stringify(inner, null, 2) } };
}

function rowToJson(row, index) {
  if (!Object.hasOwn(KINDS, row.kind)) return parsed(row.values.json, index);
  const found = { type: row.kind };
  for (const field of KINDS[row.kind].fields) {
    const value = row.values[field.name];
    if (field.as === "text") found[field.name] = value ?? "";
    if (field.as === "lines") found[field.name] = value ? value.split("\n") : [];
    if (field.as === "json") found[field.name] = parsed(value, index);
    if (field.as === "check" && value) found[field.name] = true;
    if (field.as === "number" && value !== undefined && value !== "") found[field.name] = Number(value);
  }
  return found;
}

function shown(field, value) {
  if (field.as === "lines") return Array.isArray(value) ? value.join("\n") : value;
  if (field.as === "json") return JSON.stringify(value, null, 2);
  return field.as === "number" ? String(value) : value;
}

function parsed(source, index) {
  try {
    return JSON.parse(source ?? "");
  } catch (error) {
    throw new BadCondition(index, `This is no JSON: ${error.message}`);
  }
}

/** Equal as JSON, whatever the order of fields. */
function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}
