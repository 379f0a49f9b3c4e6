// What the page knows and shows, in one place; parts of the page listen to what concerns them.

export const state = {
  run: null,
  map: null,
  phases: null,
  answer: null, // how the typed text or the picked row is read
  relative: null, // T / T_c on the slider; null: the bank as it was fitted
  layout: "neighbours",
  selected: null, // number of a prototype
  pointed: null, // number of a prototype under the pointer
};

const listeners = [];

export function listen(keys, work) {
  listeners.push({ keys, work });
}

export function change(changes) {
  const changed = Object.keys(changes).filter((key) => state[key] !== changes[key]);
  Object.assign(state, changes);
  for (const { keys, work } of listeners) if (keys.some((key) => changed.includes(key))) work();
}

export const prototypes = () => state.run.cards.length;

export const nameOf = (number) => state.run.names[number];

export const titleOf = (number) => nameOf(number) ?? state.run.titles[number];

export const select = (number) => change({ selected: number });
