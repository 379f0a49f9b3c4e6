// The rows: searched, filtered by prototype, label and certainty, sorted and paged by the server.

import { colourOf } from "./colours.js";
import { byId, clipped, debounced, element, percent, whole } from "./dom.js";
import { titled } from "./naming.js";
import { complain } from "./notices.js";
import { readRow } from "./reading.js";
import { newest, TakenBack } from "./server.js";
import { select, state } from "./state.js";

const PAGE = 25;
const asked = { search: "", prototype: null, label: "", least: "", most: "", kind: "", order: "row" };
let offset = 0;
let shown = 0; // the offset of the rows that are in the table
let total = 0;

const ORDERS = {
  row: ["in the order of the data", {}],
  unsure: ["most undecided first", { sort: "entropy", descending: "true" }],
  sure: ["most decided first", { sort: "entropy" }],
  share: ["smallest leading share first", { sort: "confidence" }],
};
const KINDS = {
  "": ["all rows", {}],
  wrong: ["read wrongly by the head", { wrong: "true" }],
  held: ["held out", { held_out: "true" }],
  heldWrong: ["held out and read wrongly", { held_out: "true", wrong: "true" }],
};

export function showRows() {
  filters();
  byId("page-back").addEventListener("click", () => turn(-PAGE));
  byId("page-on").addEventListener("click", () => turn(PAGE));
  window.addEventListener("rows-of", (event) => {
    asked.prototype = event.detail;
    begin();
    filters();
    byId("rows-title").scrollIntoView({ block: "start", behavior: "smooth" });
  });
  load();
}

function begin() {
  offset = 0;
  load();
}

const beginSoon = debounced(begin, 160);

function turn(by) {
  offset = Math.max(0, offset + by);
  load();
}

const hasTexts = () => state.run.columns.includes("text");
const hasLabels = () => state.run.columns.includes("label");

function filters() {
  const place = byId("filters");
  if (place.contains(document.activeElement) && document.activeElement.matches("input")) return; // someone is writing
  const field = (name, properties) => {
    const made = element("input", { ...properties, value: asked[name] });
    made.addEventListener("input", () => { asked[name] = made.value; beginSoon(); });
    return made;
  };
  const choice = (name, options, label) => {
    const made = element("select", { id: `rows-${name}`, "aria-label": label },
      options.map(([value, said]) => element("option", { value, selected: asked[name] === value }, said)));
    made.addEventListener("change", () => { asked[name] = made.value; begin(); });
    return made;
  };
  const parts = [
    hasTexts() ? field("search", { id: "rows-search", type: "search", placeholder: "Search the texts", "aria-label": "Search the texts" }) : null,
    element("span", { class: "inline" }, "leading share ",
      field("least", { id: "rows-least", type: "number", min: 0, max: 100, step: 1, placeholder: "0", "aria-label": "Leading share from, per cent" }), " to ",
      field("most", { id: "rows-most", type: "number", min: 0, max: 100, step: 1, placeholder: "100", "aria-label": "Leading share to, per cent" }), " %"),
    hasLabels() ? choice("label", [["", "every label"], ...(state.run.settings.classes ?? []).map((name) => [name, clipped(name, 60)])], "Label") : null,
    hasLabels() ? choice("kind", Object.entries(KINDS).map(([value, [said]]) => [value, said]), "Which rows") : null,
    choice("order", Object.entries(ORDERS).map(([value, [said]]) => [value, said]), "Order"),
    asked.prototype === null ? null : element("button", {
      type: "button", class: "chip", id: "rows-prototype", onclick: () => { asked.prototype = null; begin(); filters(); },
    }, element("span", { class: "dot", style: { background: colourOf(asked.prototype) } }),
    titled(asked.prototype, { class: "name" }), " ×"),
  ];
  place.replaceChildren(...parts.filter(Boolean));
}

function address() {
  const parameters = { search: asked.search, label: asked.label, ...ORDERS[asked.order][1], ...KINDS[asked.kind][1], offset, limit: PAGE };
  if (asked.prototype !== null) parameters.prototype = asked.prototype;
  if (asked.least !== "") parameters.least_confidence = Number(asked.least) / 100;
  if (asked.most !== "") parameters.most_confidence = Number(asked.most) / 100;
  return `api/rows?${new URLSearchParams(parameters)}`;
}

async function load() {
  try {
    const found = await newest("rows", address());
    complain("rows", "");
    ({ total, offset: shown } = found);
    show(found.rows);
  } catch (error) {
    if (error instanceof TakenBack) return;
    offset = shown; // or the next turn would skip the page that did not come
    complain("rows", error.message);
  }
}

function show(rows) {
  byId("rows-count").textContent = `${whole(total)} of ${whole(state.run.settings.rows)}`;
  byId("page-back").disabled = offset === 0;
  byId("page-on").disabled = offset + PAGE >= total;
  byId("page-number").textContent = total ? `${whole(offset + 1)} to ${whole(Math.min(total, offset + PAGE))}` : "none";
  const heads = ["row", hasTexts() ? "text" : null, "prototype", "share", hasLabels() ? "label" : null].filter(Boolean);
  byId("table").replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col", class: `c-${head}` }, head)))),
    element("tbody", {}, rows.map(rowShown))));
}

function rowShown(row) {
  const said = row.text ?? row.id;
  return element("tr", {},
    element("td", { class: "c-row" }, element("button", { type: "button", class: "link", title: "read it above", onclick: () => { readRow(row.row); byId("reading").scrollIntoView({ block: "start", behavior: "smooth" }); } }, whole(row.row))),
    hasTexts() ? element("td", { class: "c-text", dir: "auto" }, clipped(said ?? "", 200), row.characters ? element("small", {}, ` (${whole(row.characters)} characters)`) : null) : null,
    element("td", { class: "c-prototype" }, element("button", { type: "button", class: "link", onclick: () => select(row.prototype) },
      element("span", { class: "dot", style: { background: colourOf(row.prototype) } }), titled(row.prototype, { class: "name" }))),
    element("td", { class: "c-share" }, element("span", { class: "track", title: `entropy ${row.entropy.toFixed(2)} nats` },
      element("span", { class: "fill", style: { width: `${100 * row.confidence}%`, background: colourOf(row.prototype) } })), percent(row.confidence)),
    hasLabels() ? element("td", { class: "c-label", dir: "auto" }, labelShown(row)) : null);
}

function labelShown(row) {
  const parts = [row.label ?? "no label"];
  if (row.wrong) parts.push(element("small", { class: "wrong" }, `read as ${row.predicted}`));
  if (row.held_out) parts.push(element("small", {}, "held out"));
  return parts;
}
