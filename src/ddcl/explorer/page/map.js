// The map: begins it, and moves it from one layout or temperature to another.

import { colourBy, onSchemeChange } from "./colours.js";
import { byId, whole } from "./dom.js";
import { draw } from "./painting.js";
import { placed } from "./places.js";
import { scene, wholeView } from "./scene.js";
import { listen, state } from "./state.js";
import { walk } from "./walking.js";

const MOVING = 420; // milliseconds of an animation
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
let moving = null;

export function drawMap() {
  scene.canvas = byId("map");
  scene.pen = scene.canvas.getContext("2d");
  colourBy((state.map.neighbours ?? state.map.plane).prototypes);
  scene.shown = target();
  new ResizeObserver(() => { resize(); draw(); }).observe(scene.canvas.parentElement);
  resize();
  listen(["layout"], () => { wholeView(); animate(); note(); });
  listen(["relative"], () => { settle(); note(); });
  listen(["answer", "selected", "pointed", "run"], draw);
  onSchemeChange(draw);
  walk();
  note();
  draw();
}

function note() {
  byId("map-note").textContent = state.layout === "neighbours"
    ? `Each dot is a row (${whole(state.map.rows.length)} of ${whole(state.run.settings.rows)}), each disc a prototype. Near means alike; distances far apart mean little (t-SNE).`
    : "The plane in which the rows vary most (principal components)."
      + (state.phases ? " Turn the temperature: prototypes move to where they would rest, and merge." : "");
}

const target = () => ({ ...placed(), rows: state.map[state.layout].rows });

function settle() {
  if (moving) return; // the animation looks where to go at every frame
  scene.shown = target();
  draw();
}

function animate() {
  const from = scene.shown;
  const began = performance.now();
  cancelAnimationFrame(moving);
  const frame = (now) => {
    const done = still.matches ? 1 : Math.min(1, (now - began) / MOVING);
    const eased = 1 - (1 - done) ** 3;
    const to = target();
    const mix = (a, b) => a.map((place, k) => [place[0] + (b[k][0] - place[0]) * eased, place[1] + (b[k][1] - place[1]) * eased]);
    scene.shown = done === 1 ? to : { groups: to.groups, places: mix(from.places, to.places), rows: mix(from.rows, to.rows) };
    moving = done === 1 ? null : requestAnimationFrame(frame);
    draw();
  };
  moving = requestAnimationFrame(frame);
}

function resize() {
  const ratio = window.devicePixelRatio || 1;
  scene.width = scene.canvas.clientWidth;
  scene.height = scene.canvas.clientHeight;
  scene.canvas.width = Math.round(scene.width * ratio);
  scene.canvas.height = Math.round(scene.height * ratio);
  scene.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
}
