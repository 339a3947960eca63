// What the page begins with, and what else there is to try. Measured on the bundled model; another model says other things.

const MANY = 512; // particles, where texts are short

export const EXAMPLES = [
  {
    name: "A given ending",
    about: "Masking takes whatever word comes first, and then has to say “happy”.",
    prompt: "The girl was",
    constraint: { type: "ends_with", text: " happy." },
    max_tokens: 3,
    num_particles: MANY,
    seed: 2,
  },
  {
    name: "One of three answers",
    about: "Masking begins with “not” because that is a likely word, and then there is no way back from “not at all”.",
    prompt: "Is it good? The answer is",
    constraint: { type: "choice", texts: [" yes.", " no.", " not at all."] },
    max_tokens: 5,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "A word that must occur",
    about: "Masking puts the dragon off until the last moment, and pays for it there. A harder case: look at the verdict, too.",
    prompt: "Once upon a time there was a little",
    constraint: { type: "contains", text: " dragon" },
    max_tokens: 6,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "Words that must not occur",
    about: "A likely constraint: masking is nearly right here, and the page says so.",
    prompt: "The weather is",
    constraint: { type: "ban", phrases: [" not", " very", " so"] },
    max_tokens: 2,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "A time of day",
    about: "A pattern for the whole text. Many texts fit, none is likely, and masking is not far off.",
    prompt: "The train leaves at",
    constraint: { type: "regex", pattern: " [0-2][0-9]:[0-5][0-9]\\." },
    max_tokens: 7,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "JSON for a schema",
    about: "This model hardly ever writes JSON by itself; what it would write if it did is well defined all the same.",
    prompt: "Is the sky blue? In JSON:",
    constraint: {
      type: "json_schema",
      schema: { type: "object", properties: { blue: { type: "boolean" } }, required: ["blue"], additionalProperties: false },
    },
    max_tokens: 14,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "Several conditions",
    about: "A word of each list, an end of the sentence, none of them “very”, and no “o” anywhere.",
    prompt: "The weather",
    constraint: {
      type: "and",
      of: [
        { type: "regex", pattern: "( is| was| looks| feels)( very| quite| so| too| really)( warm| cold| fine| bad| nice)\\." },
        { type: "not", of: { type: "contains", text: "very" } },
        { type: "ban", phrases: ["o"] },
      ],
    },
    max_tokens: 5,
    num_particles: MANY,
    seed: 1,
  },
  {
    name: "A message to answer",
    about: "For models that read chats: one of three answers, and few particles, for such models are slow without an accelerator.",
    messages: [
      { role: "system", content: "You answer in one short sentence." },
      { role: "user", content: "Is a tomato a fruit?" },
    ],
    constraint: { type: "choice", texts: ["Yes, it is.", "No, it is not.", "It is both."] },
    max_tokens: 8,
    num_particles: 64,
    seed: 1,
  },
  { name: "Nothing yet", about: "Your own.", prompt: "", constraint: { type: "contains", text: "" }, max_tokens: 6 },
];
