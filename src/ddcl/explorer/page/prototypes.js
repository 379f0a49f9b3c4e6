// The list of prototypes, and the card of the one that is chosen.

import { colourOf } from "./colours.js";
import { byId, debounced, element, percent, whole } from "./dom.js";
import { nameField, renameButton, titled } from "./naming.js";
import { exampleShown } from "./reading.js";
import { change, listen, select, state, titleOf } from "./state.js";

const SIBLINGS = 12;

export function showPrototypes() {
  byId("list-search").addEventListener("input", debounced(showList, 60));
  byId("list-order").addEventListener("change", showList);
  listen(["selected"], () => { showCard(); showList(); });
  showList();
  showCard();
}

function ordered() {
  const numbers = state.run.cards.map((card) => card.number);
  const order = byId("list-order").value;
  if (order === "size") numbers.sort((a, b) => state.run.cards[b].size - state.run.cards[a].size);
  if (order === "title") numbers.sort((a, b) => titleOf(a).localeCompare(titleOf(b)));
  const wanted = byId("list-search").value.trim().toLowerCase();
  if (!wanted) return numbers;
  return numbers.filter((number) => {
    const card = state.run.cards[number];
    const said = [titleOf(number), `${number}`, card.label ?? "", ...card.terms.map((one) => one.term)];
    return said.some((one) => one.toLowerCase().includes(wanted));
  });
}

function showList() {
  const largest = Math.max(1, ...state.run.cards.map((card) => card.size));
  const items = ordered().map((number) => entry(number, largest));
  byId("list").replaceChildren(...(items.length ? items : [element("li", { class: "hint" }, "No prototype is called that.")]));
}

function entry(number, largest) {
  const card = state.run.cards[number];
  const item = element("li", { "data-prototype": number, class: state.selected === number ? "chosen" : "" });
  const open = element("button", {
    type: "button", class: "entry", onclick: () => select(number),
    onpointerenter: () => change({ pointed: number }), onpointerleave: () => change({ pointed: null }),
  },
  element("span", { class: "dot", style: { background: colourOf(number) } }),
  titled(number, { class: "name" }),
  element("span", { class: "size" }, whole(card.size)),
  element("span", { class: "track" }, element("span", { class: "fill", style: { width: `${(100 * card.size) / largest}%`, background: colourOf(number) } })));
  const edit = renameButton(number, () => {
    const hide = (hidden) => { for (const one of [open, edit]) one.hidden = hidden; };
    const field = nameField(number, (_, lost) => {
      field.remove(); // the entry stays where it stands: the order is made anew when it is asked for
      hide(false);
      if (lost) edit.focus();
    });
    hide(true);
    item.append(field);
    field.focus();
    field.select();
  });
  item.append(open, edit);
  return item;
}

function showCard() {
  const place = byId("card");
  const number = state.selected;
  const within = place.parentElement.contains(document.activeElement); // what had the focus is hidden or replaced now
  place.hidden = number === null;
  byId("prototype-list").hidden = number !== null;
  if (number === null) {
    place.replaceChildren();
    return;
  }
  const card = state.run.cards[number];
  place.dataset.prototype = number;
  place.replaceChildren(
    element("div", { class: "heading" },
      element("h2", { id: "card-title", tabindex: -1 }, element("span", { class: "dot", style: { background: colourOf(number) } }), `Prototype ${number}`),
      element("button", { type: "button", id: "card-close", onclick: close, "aria-label": "Back to all prototypes" }, "‹ all")),
    nameField(number, (field, lost) => { if (lost) field.focus(); }),
    element("p", { class: "note" }, "The title is a field: write a name, Enter keeps it."),
    figures(card),
    ...terms(card),
    ...levels(number),
    ...examples(card),
    ...neighbours(card),
  );
  place.scrollTop = 0;
  if (within) byId("card-title").focus({ preventScroll: true });
  if (window.matchMedia("(max-width: 899px)").matches) place.scrollIntoView({ block: "start" });
}

function close() {
  const last = state.selected;
  select(null);
  const entered = byId("list").querySelector(`[data-prototype="${last}"] button`);
  (entered ?? byId("list-search")).focus({ preventScroll: true }); // it may not be among those that are searched for
}

function figures(card) {
  const said = [["rows", whole(card.size)], ["of all", percent(card.coverage)]];
  if (card.confidence !== null) said.push(["mean share", percent(card.confidence)]);
  if (card.purity !== null) said.push([card.taught ? "purity, learned from labels" : "purity", percent(card.purity)]);
  return element("div", {},
    element("dl", { class: "figures" }, said.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    card.label === null ? null : element("p", { class: "note" }, "most frequent label ", element("strong", { dir: "auto" }, card.label)),
    element("p", {}, element("button", { type: "button", id: "card-rows", onclick: () => showRowsOf(card.number) }, "its rows below")));
}

function showRowsOf(number) {
  window.dispatchEvent(new CustomEvent("rows-of", { detail: number }));
}

function terms(card) {
  if (!card.terms.length) return [];
  const strongest = card.terms[0].weight || 1;
  return [
    element("h3", {}, "Terms"),
    element("p", { class: "terms", id: "card-terms" }, card.terms.map((one) =>
      element("span", { class: "term", dir: "auto", style: { "--strength": `${Math.round((100 * one.weight) / strongest)}%` } }, one.term))),
  ];
}

// with a hierarchy: which prototypes it is read together with, level by level
function levels(number) {
  const parents = state.run.result.parents ?? [];
  const ancestor = (one, level) => parents.slice(0, level).reduce((below, step) => step[below], one);
  return parents.flatMap((_, index) => {
    const level = index + 1;
    const own = ancestor(number, level);
    const others = state.run.cards.map((card) => card.number).filter((one) => one !== number && ancestor(one, level) === own);
    return [
      element("h3", {}, `Level ${level}: one of ${state.run.settings.levels[level]} groups, with`),
      others.length
        ? element("ul", { class: "links" }, others.slice(0, SIBLINGS).map((one) => element("li", {}, link(one))))
        : element("p", { class: "note" }, "no other prototype"),
      others.length > SIBLINGS ? element("p", { class: "note" }, `and ${others.length - SIBLINGS} more`) : "",
    ];
  });
}

const link = (number, note) => element("button", { type: "button", class: "link", onclick: () => select(number) },
  element("span", { class: "dot", style: { background: colourOf(number) } }), titled(number, { class: "name" }), note ? element("small", {}, note) : null);

function examples(card) {
  if (!card.examples.length) return [];
  return [element("h3", {}, "Most typical rows"), element("ul", { class: "examples", id: "card-examples" }, card.examples.map(exampleShown))];
}

function neighbours(card) {
  if (!card.neighbours.length) return [];
  return [
    element("h3", {}, "Nearest prototypes"),
    element("ul", { class: "links", id: "card-neighbours" },
      card.neighbours.map((one) => element("li", {}, link(one.prototype, ` ${one.distance.toFixed(1)} √T`)))),
  ];
}
