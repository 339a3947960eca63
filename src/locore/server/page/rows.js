// The type of a record as rows, one a field, and as JSON Schema.

export const KINDS = {
  text: { name: "text", schema: () => ({ type: "string" }) },
  whole: { name: "whole number", schema: () => ({ type: "integer" }) },
  number: { name: "number", schema: () => ({ type: "number" }) },
  boolean: { name: "yes or no", schema: () => ({ type: "boolean" }) },
  date: { name: "date", schema: () => ({ type: "string", format: "date" }) },
  choice: { name: "one of", schema: ({ values }) => ({ enum: values.split(",").map((value) => value.trim()).filter(Boolean) }) },
};

/** The type that the rows say. */
export function schemaOf(fields) {
  const named = fields.filter(({ name }) => name);
  return {
    type: "object",
    properties: Object.fromEntries(named.map((field) => [field.name, KINDS[field.kind].schema(field)])),
    required: named.filter(({ optional }) => !optional).map(({ name }) => name),
    additionalProperties: false,
  };
}

/** The rows that say a type; null where it says more than rows can. */
export function rowsOf(schema) {
  const found = Object.entries(schema.properties ?? {}).map(([name, inner]) => {
    const values = Array.isArray(inner?.enum) ? inner.enum.join(", ") : "";
    const kind = Object.keys(KINDS).find((each) => same(KINDS[each].schema({ values }), inner));
    return { name, kind, values, optional: !schema.required?.includes(name) };
  });
  return found.every(({ kind }) => kind) && same(schemaOf(found), schema) ? found : null;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
