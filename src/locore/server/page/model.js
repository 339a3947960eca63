// The model of this server, which may still be loading.
import { ServerError, modelFacts } from "./api.js";
import { $ } from "./dom.js";

const LOADING_MS = 1000; // between two questions whether the model is loaded

/** What the server says of its model, once it is loaded. */
export async function findModel(signal) {
  for (;;) {
    try {
      const facts = await modelFacts(signal);
      $("model").textContent = `Model: ${facts.id}`;
      return facts;
    } catch (error) {
      if (!(error instanceof ServerError) || error.code !== "loading") throw error;
      $("model").textContent = "The model is being loaded …";
      await new Promise((resolve) => setTimeout(resolve, LOADING_MS));
    }
  }
}
