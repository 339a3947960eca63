// What the page asks of the server. The key is kept in this variable only.

let key = "";

export const setKey = (value) => (key = value.trim());

export class ServerError extends Error {
  constructor(status, { message, param = null, code = "unknown" }) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

const unreachable = (message) => new ServerError(0, { message, code: "unreachable" });

async function send(path, options = {}) {
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable("The server cannot be reached; is it still running?");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new ServerError(answer.status, body?.error ?? { message: `The server answered ${answer.status}.` });
}

export const modelFacts = async (signal) => (await send("/page/model", { signal })).json();

/** The answer of OpenAI's routes to a request for a record. */
export async function extract(asked, signal) {
  const path = asked.messages ? "/v1/chat/completions" : "/v1/completions";
  return (await send(path, { method: "POST", body: JSON.stringify(asked), signal })).json();
}

/** The answer to a problem; `tell` is given each event before it. */
export async function compare(problem, signal, tell) {
  const answer = await send("/page/compare", { method: "POST", body: JSON.stringify({ ...problem, stream: true }), signal });
  try {
    for await (const event of events(answer.body)) {
      if (event.error) throw new ServerError(answer.status, event.error);
      if (event.state === "done") return event.answer;
      tell(event);
    }
  } catch (error) {
    if (error instanceof ServerError || error.name === "AbortError") throw error;
  }
  throw unreachable("The connection broke off before there was an answer. Press Run to try again.");
}

/** The events of a stream; comments and its end are left out. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: {")) yield JSON.parse(part.slice("data: ".length));
  }
}
