// A result that was kept, beside the one that came last.
import { $, chance, cutMark, h, visible } from "./dom.js";
import { evidence, probable, verdict } from "./results.js";
import { beginning, constraintInWords } from "./words.js";

const MOST = 5; // texts of each
const SETTINGS = { max_tokens: "at most", min_tokens: "at least", temperature: "temperature", top_p: "top-p", ending: "ending", stop: "before", finished: "finished", sampler: "sampler" };

let kept = null;

/** Keep a result; `dropped` is called when it is given up. */
export function keep(asked, answer, dropped) {
  kept = { asked, answer, dropped };
  drawKept(null);
  $("kept").focus();
}

/** Show what is kept, alone or beside another result. */
export function drawKept(now) {
  $("kept").hidden = kept === null;
  if (kept === null) return;
  const other = now && column("Now", now);
  $("kept").replaceChildren(
    h(
      "div",
      { class: "card" },
      h("h2", {}, now ? "Side by side" : "Kept"),
      now ? null : h("p", { class: "note" }, "Change the constraint or the prompt, and press Run: both will stand here."),
      h("div", { class: "sides" }, column(now && "Kept", kept), other),
      h("button", { type: "button", class: "plain", onclick: drop }, "Keep it no longer"),
    ),
  );
}

function drop() {
  const { dropped } = kept;
  kept = null;
  drawKept(null);
  dropped();
}

function column(title, { asked, answer }) {
  const { locore, texts } = answer;
  const [often, how] = evidence(locore);
  const likeliest = texts.filter((row) => row.locore).sort((a, b) => probable(b) - probable(a)).slice(0, MOST);
  const settings = Object.entries(SETTINGS).filter(([name]) => asked[name] !== undefined).map(([name, said]) => `${said} ${asked[name]}${name.endsWith("tokens") ? " tokens" : ""}`);
  return h(
    "div",
    { class: "locore" },
    title && h("h3", {}, title),
    h("p", {}, beginning(asked), ": ", h("b", {}, constraintInWords(asked.constraint)), h("span", { class: "quiet" }, ` (${settings.join(", ")})`)),
    h("p", {}, "p(constraint): ", h("b", {}, often), h("span", { class: "quiet small" }, ` ${how}`)),
    h("p", {}, "Verdict: ", verdict(locore)),
    h(
      "table",
      { class: "few" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Likeliest texts"), h("th", { scope: "col" }, "p(text | constraint)"))),
      h("tbody", {}, likeliest.map((row) =>
        h("tr", {}, h("th", { scope: "row" }, h("span", { class: "text" }, visible(row.text) || "(nothing)"), row.cut ? cutMark() : null), h("td", {}, chance(probable(row)))))),
    ),
  );
}
