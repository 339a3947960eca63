// What OpenAI's client for JavaScript gets: node client.mjs MODULES URL KEY prints one JSON object.

import { createRequire } from "node:module";

const [modules, baseURL, apiKey] = process.argv.slice(2);
const require = createRequire(modules + "/");
const OpenAI = require("openai").default;
const { zodResponseFormat, zodFunction } = require("openai/helpers/zod");
const { z } = require("zod");

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const asked = { model: "tiny", seed: 1, max_tokens: 64, messages: [{ role: "user", content: "How is the weather?" }] };
const Weather = z.object({ mood: z.enum(["good", "bad"]), degrees: z.number().int().min(0).max(40).nullable() });
const found = {};

found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);

const completion = { model: "tiny", prompt: "The weather is", max_tokens: 3, seed: 5, constraint: { type: "ends_with", text: " happy." } };
found.completion = (await client.completions.create(completion)).choices[0].text;

const format = zodResponseFormat(Weather, "weather");
const parsed = await client.chat.completions.parse({ ...asked, response_format: format });
found.parsed = parsed.choices[0].message.parsed;

const runner = client.chat.completions.stream({ ...asked, response_format: format });
let pieces = "";
runner.on("content", (delta) => (pieces += delta));
found.streamed = (await runner.finalChatCompletion()).choices[0].message.parsed;
found.pieces = pieces;

let text = "";
for await (const chunk of await client.chat.completions.create({ ...asked, max_tokens: 4, stream: true }))
  text += chunk.choices[0]?.delta?.content ?? "";
found.text = text;
found.whole = (await client.chat.completions.create({ ...asked, max_tokens: 4 })).choices[0].message.content;

const tools = [zodFunction({ name: "wake", parameters: z.object({ hour: z.number().int().min(0).max(23) }) })];
const called = await client.chat.completions.parse({ ...asked, tools, tool_choice: "required" });
found.calls = called.choices[0].message.tool_calls.map((call) => [call.function.name, call.function.parsed_arguments]);

try {
  await client.chat.completions.create({ ...asked, suffix: "x" });
} catch (error) {
  found.refused = [error.constructor.name, error.status, error.param];
}
try {
  await new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list();
} catch (error) {
  found.stranger = [error.constructor.name, error.status];
}

console.log(JSON.stringify(found));
