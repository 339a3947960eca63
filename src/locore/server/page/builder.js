// The form for a constraint and its JSON, each of which follows the other.
import { $, h, visible } from "./dom.js";
import { BadCondition, EMPTY, KINDS, OTHER, fromJson, kindOf, newRow, toJson } from "./kinds.js";

let state = { join: "and", rows: [] };
let changed = () => {};

export function startBuilder(onChange) {
  changed = onChange;
  $("join").addEventListener("change", () => {
    state.join = $("join").value;
    fromRows();
  });
  $("add").addEventListener("click", () => {
    state.rows.push(newRow());
    draw();
    fromRows();
    rowElement(state.rows.length - 1).querySelector(".kind").focus();
  });
  $("json").addEventListener("input", fromText);
}

/** Show a constraint. */
export function setConstraint(constraint) {
  state = fromJson(constraint);
  draw();
  fromRows();
}

/** The constraint that is shown, or null with the focus where it has to be put right. */
export function currentConstraint() {
  if ($("json-error").textContent) {
    $("json-details").open = true;
    $("json").focus();
    return null;
  }
  try {
    return toJson(state);
  } catch (error) {
    if (!(error instanceof BadCondition)) throw error;
    rowElement(error.row).querySelector("textarea").focus();
    return null;
  }
}

const rowElement = (index) => $("conditions").children[index];

/** The rows have changed: write the JSON. */
function fromRows() {
  showErrors();
  try {
    $("json").value = JSON.stringify(toJson(state), null, 2);
    jsonProblem("");
  } catch (error) {
    if (!(error instanceof BadCondition)) throw error;
    const place = rowElement(error.row);
    place.querySelector(".error").textContent = error.message;
    place.querySelector("textarea").setAttribute("aria-invalid", "true");
  }
  changed();
}

function showErrors() {
  for (const row of $("conditions").children) {
    row.querySelector(".error").textContent = "";
    row.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
  }
}

/** The JSON has changed: show the rows that say the same. */
function fromText() {
  try {
    const constraint = JSON.parse($("json").value);
    if (typeof constraint !== "object" || constraint === null || Array.isArray(constraint)) {
      throw new SyntaxError('a constraint is an object such as {"type": "contains", "text": " sun"}');
    }
    state = fromJson(constraint);
    jsonProblem("");
    draw();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    jsonProblem(`The form above stays as it was until this is JSON: ${error.message}`);
  }
  changed();
}

function jsonProblem(message) {
  $("json-error").textContent = message;
  if (message) $("json").setAttribute("aria-invalid", "true");
  else $("json").removeAttribute("aria-invalid");
}

function draw() {
  $("join").value = state.join;
  $("joining").hidden = state.rows.length < 2;
  $("conditions").replaceChildren(...state.rows.map(drawRow));
}

function drawRow(row, index) {
  const options = Object.entries(KINDS).map(([type, kind]) => h("option", { value: type }, kind.name));
  const select = h(
    "select",
    {
      class: "kind",
      "aria-label": `Condition ${index + 1}: the text`,
      onchange: (event) => {
        Object.assign(row, { kind: event.target.value, values: carriedOver(row, event.target.value) });
        draw();
        fromRows();
        rowElement(index).querySelector(".kind").focus();
      },
    },
    options,
    h("option", { value: "other" }, OTHER.name),
  );
  select.value = row.kind;
  const not = h("input", {
    type: "checkbox",
    checked: row.not,
    onchange: (event) => {
      row.not = event.target.checked;
      fromRows();
    },
  });
  const remove = h(
    "button",
    { type: "button", class: "plain remove", "aria-label": `Remove condition ${index + 1}`, onclick: () => removeRow(index) },
    "×",
  );
  const fields = kindOf(row).fields.map((field) => drawField(row, field, index));
  const small = (field) => field.as === "check" || field.as === "number";
  return h(
    "li",
    { class: "condition" },
    h("div", { class: "head" }, h("label", { class: "not" }, not, " not"), select, remove),
    fields.filter((_, i) => !small(kindOf(row).fields[i])),
    h("div", { class: "small-fields" }, fields.filter((_, i) => small(kindOf(row).fields[i]))),
    h("p", { class: "error", id: `condition-${index}-error`, role: "alert" }),
  );
}

/** A text that was typed stays when the kind of a condition changes, where the new kind has a place for it. */
function carriedOver(row, kind) {
  const first = kindOf(row).fields[0];
  const typed = first.as === "json" ? undefined : row.values[first.name];
  const next = (KINDS[kind] ?? OTHER).fields[0];
  if (kind === "other") return { json: JSON.stringify(safely(row)) };
  if (next.as === "text" && typed !== undefined && first.as !== "number") return { [next.name]: typed.split("\n")[0] };
  if (next.as === "lines" && typed !== undefined && first.as !== "number") return { [next.name]: typed };
  return { ...EMPTY[kind] };
}

function safely(row) {
  try {
    return toJson({ join: "and", rows: [{ ...row, not: false }] });
  } catch {
    return { type: "true" };
  }
}

function removeRow(index) {
  state.rows.splice(index, 1);
  draw();
  fromRows();
  (rowElement(Math.min(index, state.rows.length - 1))?.querySelector(".kind") ?? $("add")).focus();
}

function drawField(row, field, index) {
  const id = `condition-${index}-${field.name}`;
  const value = row.values[field.name];
  const echo = field.as === "text" || field.as === "lines" ? h("p", { class: "echo", "aria-hidden": "true" }) : null;
  const update = (event) => {
    row.values[field.name] = field.as === "check" ? event.target.checked : event.target.value;
    if (echo) showSpaces(echo, event.target.value);
    fromRows();
  };
  if (field.as === "check") {
    return h("label", { class: "check" }, h("input", { type: "checkbox", checked: Boolean(value), onchange: update }), ` ${field.label}`);
  }
  const common = { id, oninput: update, spellcheck: "false", value: value ?? "", "aria-describedby": `condition-${index}-error` };
  const several = field.as === "lines" || field.as === "json";
  const rows = Math.min(10, Math.max(2, String(value ?? "").split("\n").length));
  const input = several
    ? h("textarea", { ...common, class: "code", rows })
    : h("input", { ...common, class: field.as === "text" ? "code" : null, type: field.as, min: field.as === "number" ? 0 : null });
  if (echo) showSpaces(echo, value ?? "");
  return h("div", { class: `field ${field.as}` }, h("label", { for: id }, field.label), input, echo);
}

/** Spaces at the ends of a line cannot be seen in a field, so they are written out below it. */
function showSpaces(echo, value) {
  const edges = /^ | $/m.test(value);
  echo.textContent = edges ? value.split("\n").map((line) => visible(line.replaceAll(" ", "␣"))).join("   ") : "";
}
