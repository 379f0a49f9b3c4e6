// The temperature, in units of T_c, over a small phase diagram: how many places the prototypes rest in at each.

import { byId, drawn, element, short } from "./dom.js";
import { between, step } from "./mixing.js";
import { change, listen, prototypes, state } from "./state.js";

const WIDTH = 400;
const HEIGHT = 56;
const FINE = 1000; // positions of the slider

let slider, said, back;
let left; // the layout before the slider was turned: where prototypes rest when warmer, only the plane can show

export function showTemperature() {
  const { phases } = state;
  const place = byId("temperature");
  slider = element("input", {
    type: "range", id: "slider", min: 0, max: FINE, step: 1, "aria-label": "Temperature in units of the critical temperature",
    oninput: () => turn(atSlider()),
  });
  said = element("p", { class: "said", role: "status" });
  back = element("button", { type: "button", id: "as-fitted", onclick: () => turn(null), hidden: true }, "as fitted");
  place.replaceChildren(
    element("div", { class: "heading" }, element("h3", {}, "Temperature"), back),
    element("div", { class: "diagram" }, diagram(phases), slider,
      element("div", { class: "scale", "aria-hidden": "true" },
        element("span", {}, `${short(phases.relative[0])} T_c`), element("span", {}, `${short(phases.relative.at(-1))} T_c`))),
    said,
  );
  listen(["relative"], show);
  show();
}

const range = () => [Math.log(state.phases.relative[0]), Math.log(state.phases.relative.at(-1))];

function atSlider() {
  const [low, high] = range();
  return Math.exp(between(low, high, slider.value / FINE));
}

function across(relative) {
  const [low, high] = range();
  return Math.min(1, Math.max(0, (Math.log(relative) - low) / (high - low)));
}

const reading = () => state.run.result.reading.temperature / state.run.result.reading.critical;

function turn(relative) {
  let { layout } = state;
  if (relative === null && layout === "plane") layout = left; // unless another was chosen since
  else if (relative !== null && state.relative === null) [left, layout] = [layout, "plane"];
  change({ relative, layout });
}

function diagram(phases) {
  const y = (distinct) => HEIGHT - 2 - ((HEIGHT - 6) * distinct) / prototypes();
  let path = "";
  phases.relative.forEach((relative, index) => {
    const x = WIDTH * across(relative);
    path += index ? `H${x.toFixed(1)}V${y(phases.distinct[index]).toFixed(1)}` : `M${x.toFixed(1)} ${y(phases.distinct[index]).toFixed(1)}`;
  });
  const mark = WIDTH * across(reading());
  return drawn(
    "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("path", { d: `${path}V${HEIGHT}H0Z`, class: "area" }),
    drawn("path", { d: path, class: "line", "vector-effect": "non-scaling-stroke" }),
    drawn("line", { x1: mark, x2: mark, y1: 0, y2: HEIGHT, class: "mark", "vector-effect": "non-scaling-stroke" }),
  );
}

function show() {
  const { phases, relative } = state;
  back.hidden = relative === null;
  const { at, next, part } = step(relative ?? reading(), phases.relative);
  slider.value = Math.round(FINE * across(relative ?? reading()));
  const { metrics } = state.run.result;
  const first = relative === null
    ? `As fitted, read at ${short(reading())} T_c: ${metrics.distinct} of ${prototypes()} prototypes stand apart.`
    : `At ${short(relative)} T_c the bank rests in ${phases.distinct[at]} of ${prototypes()} places.`;
  const parts = [first];
  if (phases.entropy) {
    const mean = between(phases.entropy[at], phases.entropy[next], part);
    parts.push(` Rows are then mixtures of ${short(Math.exp(mean))} prototypes (mean entropy ${short(mean)} nats, the fitted prototypes at this temperature).`);
  }
  slider.setAttribute("aria-valuetext", first);
  said.textContent = parts.join("");
}
