// What the map's parts share: its canvas, where one looks, what is drawn where.

import { state } from "./state.js";

export const MARGIN = 26;

export const scene = {
  canvas: null,
  pen: null,
  width: 0,
  height: 0,
  view: { zoom: 1, x: 0, y: 0 },
  shown: null, // groups, and places of prototypes and rows, on their way to where they belong
};

export function wholeView() {
  scene.view = { zoom: 1, x: 0, y: 0 };
  scene.canvas.classList.remove("near");
}

// coordinates of the layouts are between -1 and 1
export function onScreen([x, y]) {
  return [
    scene.width / 2 + ((x - scene.view.x) * scene.view.zoom * (scene.width - 2 * MARGIN)) / 2,
    scene.height / 2 - ((y - scene.view.y) * scene.view.zoom * (scene.height - 2 * MARGIN)) / 2,
  ];
}

export function discs() {
  const found = new Map();
  scene.shown.groups.forEach((group, number) => {
    const one = found.get(group) ?? { group, size: 0, members: [], place: scene.shown.places[number] };
    one.size += state.run.cards[number].size;
    one.members.push(number);
    found.set(group, one);
  });
  const largest = Math.max(1, ...[...found.values()].map((one) => one.size));
  const scale = Math.max(3, Math.min(12, 60 / Math.sqrt(found.size))); // many discs must leave room to see the rows
  for (const one of found.values()) one.radius = 2.5 + scale * Math.sqrt(one.size / largest);
  return [...found.values()].sort((a, b) => b.size - a.size);
}

// of prototypes that have become one, the largest speaks for all
export const biggestOf = (disc) => disc.members.reduce((a, b) => (state.run.cards[b].size > state.run.cards[a].size ? b : a));
