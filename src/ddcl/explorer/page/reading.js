// Type a text, or pick a row: its mixture, what the head says, the words that carried it, rows like it.

import { colourOf } from "./colours.js";
import { byId, clipped, debounced, element, percent, short, whole } from "./dom.js";
import { entropy, grouped } from "./mixing.js";
import { titled } from "./naming.js";
import { complain } from "./notices.js";
import { answerShares, placed } from "./places.js";
import { newest, takeBack, TakenBack } from "./server.js";
import { change, listen, select, state } from "./state.js";

const BARS = 6;
const TYPING = 60; // milliseconds without a key before the mixture is asked for
const PAUSE = 450; // and before the words are, which takes longer
let box, words;

export function showReading() {
  const place = byId("asking");
  if (state.run.settings.kind === "texts") {
    box = element("textarea", {
      id: "text", rows: 3, placeholder: "Type or paste a text", "aria-label": "Text to read", dir: "auto", spellcheck: "false",
    });
    const ask = debounced(askText, TYPING);
    box.addEventListener("input", () => { takeBack("row"); ask(); });
    place.replaceChildren(box, element("div", { class: "under" },
      element("button", { type: "button", onclick: randomRow }, "a row by chance"), element("span", { id: "took", class: "note" })));
  } else {
    byId("reading-title").textContent = "Read a row";
    const last = state.run.settings.rows - 1;
    box = element("input", { id: "row", type: "number", min: 0, max: last, placeholder: `0 to ${last}`, "aria-label": "Number of a row" });
    box.addEventListener("input", debounced(askRow, TYPING));
    place.replaceChildren(element("label", { class: "inline" }, "row number ", box), element("div", { class: "under" },
      element("button", { type: "button", onclick: randomRow }, "a row by chance"), element("span", { id: "took", class: "note" })));
  }
  listen(["answer", "relative"], show);
  show();
}

export async function readRow(number) {
  if (state.run.settings.kind === "texts" && state.run.columns.includes("text")) {
    try {
      box.value = (await newest("row", `api/rows/${number}`)).text;
    } catch (error) {
      if (!(error instanceof TakenBack)) complain("reading", error.message);
      return;
    }
    await askText();
  } else {
    if (state.run.settings.kind !== "texts") box.value = number;
    await ask({ row: number });
  }
}

const randomRow = () => readRow(Math.floor(Math.random() * state.run.settings.rows));

async function askText() {
  const text = box.value;
  takeBack("words");
  if (!text.trim()) forget("");
  else if (await ask({ text })) weighLater(text);
}

async function askRow() {
  const row = Number(box.value);
  const last = state.run.settings.rows - 1;
  if (box.value === "") forget("");
  else if (Number.isInteger(row) && row >= 0 && row <= last) await ask({ row });
  else forget(`There are rows from 0 to ${last}.`);
}

// no answer is shown beside a question that it does not belong to
function forget(why) {
  takeBack("explain");
  complain("reading", why);
  byId("took").textContent = "";
  change({ answer: null });
}

async function ask(body) {
  try {
    const answer = await newest("explain", "api/explain", body);
    words = null;
    complain("reading", "");
    byId("took").textContent = `${short(answer.milliseconds)} ms`;
    change({ answer: { ...answer, asked: body.text ?? null } });
    return true;
  } catch (error) {
    if (!(error instanceof TakenBack)) forget(error.message);
    return false;
  }
}

const weighLater = debounced((text) => {
  if (box.value === text) weigh(text);
}, PAUSE);

async function weigh(text) {
  try {
    const distances = state.answer.squared_distances;
    words = await newest("words", "api/words", { text, prototype: distances.indexOf(Math.min(...distances)) });
    show();
  } catch (error) {
    if (!(error instanceof TakenBack)) complain("reading", error.message);
  }
}

function show() {
  const { answer } = state;
  const place = byId("answer");
  if (answer === null) {
    const hint = state.run.settings.kind === "texts"
      ? "Its mixture of prototypes appears here while you type." : "Its mixture of prototypes appears here.";
    place.replaceChildren(element("p", { class: "hint" }, hint));
    return;
  }
  place.replaceChildren(...mixtureShown(), ...prediction(answer), ...wordsShown(answer), ...examplesShown(answer));
}

function mixtureShown() {
  const shares = answerShares();
  const { groups } = placed();
  const all = grouped(shares, groups);
  const leading = all.slice(0, BARS).filter((one, index) => index < 3 || one.share >= 0.01);
  const rest = all.slice(leading.length).reduce((sum, one) => sum + one.share, 0);
  const bars = leading.map((one) => {
    const number = one.members[0].number;
    const others = one.members.length - 1;
    return element("li", {},
      element("button", {
        type: "button", class: "bar", onclick: () => select(number),
        onpointerenter: () => change({ pointed: number }), onpointerleave: () => change({ pointed: null }),
      },
      element("span", { class: "name" }, titled(number, {}, 80), others ? element("small", {}, ` + ${others} merged`) : null),
      element("span", { class: "share" }, percent(one.share)),
      element("span", { class: "track" }, element("span", { class: "fill", style: { width: `${100 * one.share}%`, background: colourOf(groups[number]) } }))));
  });
  const spread = short(Math.exp(entropy(all.map((one) => one.share)))); // of those that are one by now, as one
  const undecided = all.length === 1 ? "All of it in one place." : `As undecided as between ${spread} ${state.relative === null ? "prototypes" : "places"}.`;
  const beyond = all.length - leading.length;
  return [
    element("ol", { class: "bars", id: "mixture" }, bars),
    element("p", { class: "note" },
      `${beyond ? `${whole(beyond)} others together ${percent(rest)}. ` : ""}${undecided}`,
      state.relative === null ? "" : " Shares of the fitted prototypes at the temperature of the slider; merged ones are added up."),
  ];
}

function prediction(answer) {
  if (answer.predicted === null) return [];
  return [element("p", { class: "prediction" }, "Class ", element("strong", { id: "predicted", dir: "auto" }, answer.predicted),
    ` ${percent(answer.probability)}`, state.relative === null ? null : element("small", {}, " (always at the temperature the bank is read at)"))];
}

function wordsShown(answer) {
  if (!answer.asked || !words?.words.length) return [];
  const letters = Array.from(answer.asked); // the server counts characters, a string here counts halves of some
  const largest = Math.max(1e-9, ...words.words.map((word) => Math.abs(word.weight)));
  const parts = [];
  let reached = 0;
  for (const word of words.words) {
    parts.push(letters.slice(reached, word.start).join(""));
    const strength = Math.round(100 * Math.abs(word.weight) / largest);
    parts.push(element("mark", {
      class: word.weight >= 0 ? "for" : "against", style: { "--strength": `${strength}%` },
      title: `${word.weight >= 0 ? "+" : "−"}${short(Math.abs(word.weight))}`,
    }, letters.slice(word.start, word.end).join("")));
    reached = word.end;
  }
  parts.push(letters.slice(reached).join(""));
  return [
    element("h3", {}, "Words that carried it"),
    element("p", { class: "words", id: "words", dir: "auto" }, parts),
    element("p", { class: "note" }, "Shaded: speaks for ", titled(words.prototype, {}, 60), "; underlined: against it."),
  ];
}

function examplesShown(answer) {
  if (!answer.examples.length) return [];
  return [
    element("h3", {}, "Rows most like it"),
    element("ul", { class: "examples", id: "examples" }, answer.examples.map((example) => exampleShown(example))),
  ];
}

export function exampleShown(example) {
  const said = example.text ?? example.id;
  const about = said === null ? [] : [`row ${whole(example.row)}`];
  if (example.similarity !== null) about.push(`cosine ${example.similarity.toFixed(2)}`);
  if (example.label !== null) about.push(example.label);
  return element("li", {},
    element("button", { type: "button", class: "example", onclick: () => readRow(example.row) },
      element("span", { class: "text", dir: "auto" }, clipped(said ?? `row ${whole(example.row)}`, 240)),
      element("span", { class: "about" },
        element("span", { class: "dot", style: { background: colourOf(example.prototype) } }), about.join(" · "))));
}
