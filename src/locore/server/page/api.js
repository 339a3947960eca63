// What the page asks of the server. The key is kept in this variable only.

let key = "";

export const setKey = (value) => (key = value.trim());

export class ServerError extends Error {
  constructor(status, { message, param = null, code = "unknown" }) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, { message: "The server cannot be reached; is it still running?", code: "unreachable" });
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new ServerError(answer.status, body?.error ?? { message: `The server answered ${answer.status}.` });
  return body;
}

export const modelName = async () => (await ask("/v1/models")).data[0].id;

export const compare = (problem, signal) =>
  ask("/page/compare", { method: "POST", body: JSON.stringify(problem), signal });
