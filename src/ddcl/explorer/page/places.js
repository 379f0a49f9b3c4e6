// Where everything is on the map, for the layout and the temperature that are shown.

import { between, mixture, step } from "./mixing.js";
import { prototypes, state } from "./state.js";

// groups, and for each prototype a place: as fitted, or of the warmed bank between two recorded steps
export function placed() {
  const { map, phases, relative, layout } = state;
  const home = map ? map[layout].prototypes : [];
  if (relative === null || !phases) return { groups: state.run.cards.map((card) => card.number), places: home };
  const { at, next, part } = step(relative, phases.relative);
  const groups = phases.groups[at];
  if (layout === "plane") {
    const [from, to] = [phases.positions[at], phases.positions[next]];
    return { groups, places: from.map((place, k) => place.map((one, axis) => between(one, to[k][axis], part))) };
  }
  // that layout knows nothing of temperature: prototypes that are one stand at the mean of where they stood
  const [from, to] = [means(home, groups), means(home, phases.groups[next])];
  return { groups, places: from.map((place, k) => place.map((one, axis) => between(one, to[k][axis], part))) };
}

function means(places, groups) {
  const sums = new Map();
  places.forEach(([x, y], number) => {
    const weight = 1 + state.run.cards[number].size;
    const sum = sums.get(groups[number]) ?? [0, 0, 0];
    sums.set(groups[number], [sum[0] + weight * x, sum[1] + weight * y, sum[2] + weight]);
  });
  return groups.map((group) => {
    const [x, y, weight] = sums.get(group);
    return [x / weight, y / weight];
  });
}

export const temperature = () =>
  state.relative === null ? state.run.result.reading.temperature : state.relative * state.run.result.reading.critical;

export function answerShares() {
  return state.answer === null ? null : mixture(state.answer.squared_distances, temperature());
}

// the soft centroid of what is read, drawn where its mixture of the prototypes' places is
export function centroid(places, shares) {
  const found = [0, 0];
  for (let number = 0; number < prototypes(); number += 1) {
    found[0] += shares[number] * places[number][0];
    found[1] += shares[number] * places[number][1];
  }
  return found;
}
