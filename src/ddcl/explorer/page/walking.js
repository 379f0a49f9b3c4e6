// Pointer and keys on the map: hover, click, pan, zoom.

import { byId, clipped, debounced, whole } from "./dom.js";
import { draw } from "./painting.js";
import { biggestOf, discs, MARGIN, onScreen, scene, wholeView } from "./scene.js";
import { get } from "./server.js";
import { change, select, state, titleOf } from "./state.js";

function nearestDisc(x, y) {
  let best = null;
  for (const one of discs()) {
    const [left, top] = onScreen(one.place);
    const away = Math.hypot(left - x, top - y) - one.radius;
    if (away < 6 && (best === null || away < best.away)) best = { ...one, away };
  }
  return best;
}

function nearestRow(x, y) {
  let best = null;
  scene.shown.rows.forEach((place, index) => {
    const [left, top] = onScreen(place);
    const away = Math.hypot(left - x, top - y);
    if (away < 7 && (best === null || away < best.away)) best = { index, away };
  });
  return best;
}

const fetchRow = debounced(async (number, x, y) => {
  try {
    const row = await get(`api/rows/${number}`);
    if (hoveredRow !== number) return;
    const said = row.text ?? row.id ?? `row ${number}`;
    tip([clipped(said, 220), `${titleOf(row.prototype)}, ${Math.round(100 * row.confidence)} %${row.label ? ` · ${row.label}` : ""}`], x, y);
  } catch { /* the next movement asks again */ }
}, 40);

let hoveredRow = null;

function tip(lines, x, y) {
  const box = byId("tip");
  box.hidden = lines === null;
  if (lines === null) return;
  box.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line, dir: "auto" })));
  box.style.left = `${Math.max(4, Math.min(x + 14, scene.width - box.offsetWidth - 4))}px`;
  box.style.top = `${Math.max(4, y + 18 + box.offsetHeight > scene.height ? y - box.offsetHeight - 12 : y + 18)}px`;
}

export function walk() {
  const held = { on: false, moved: false, x: 0, y: 0 };
  const at = (event) => [event.offsetX, event.offsetY];
  scene.canvas.addEventListener("pointerdown", (event) => {
    Object.assign(held, { on: true, moved: false, x: event.offsetX, y: event.offsetY });
  });
  window.addEventListener("pointerup", () => { held.on = false; });
  scene.canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (held.on && (held.moved || Math.hypot(x - held.x, y - held.y) > 4)) {
      held.moved = true;
      scene.view.x -= (2 * (x - held.x)) / (scene.view.zoom * (scene.width - 2 * MARGIN));
      scene.view.y += (2 * (y - held.y)) / (scene.view.zoom * (scene.height - 2 * MARGIN));
      Object.assign(held, { x, y });
      tip(null);
      draw();
      return;
    }
    point(x, y);
  });
  scene.canvas.addEventListener("pointerleave", () => { hoveredRow = null; tip(null); change({ pointed: null }); });
  scene.canvas.addEventListener("click", (event) => {
    if (held.moved) return;
    const disc = nearestDisc(...at(event));
    const row = disc ? null : nearestRow(...at(event));
    if (disc) select(biggestOf(disc));
    else if (row) select(state.map.prototype[row.index]);
    else select(null);
  });
  scene.canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== scene.canvas && !event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...at(event));
  }, { passive: false });
  scene.canvas.addEventListener("dblclick", (event) => zoom(2, ...at(event)));
  scene.canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) {
      const order = discs().map(biggestOf);
      const now = order.indexOf(state.pointed ?? state.selected);
      change({ pointed: order[(now + steps[event.key] + order.length) % order.length] });
    } else if (event.key === "Enter" && state.pointed !== null) select(state.pointed);
    else if (event.key === "+") zoom(1.4, scene.width / 2, scene.height / 2);
    else if (event.key === "-") zoom(1 / 1.4, scene.width / 2, scene.height / 2);
    else return;
    event.preventDefault();
  });
  byId("zoom-in").addEventListener("click", () => zoom(1.6, scene.width / 2, scene.height / 2));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.6, scene.width / 2, scene.height / 2));
  byId("zoom-all").addEventListener("click", () => { wholeView(); draw(); });
}

function point(x, y) {
  const disc = nearestDisc(x, y);
  const row = disc ? null : nearestRow(x, y);
  scene.canvas.classList.toggle("over", Boolean(disc || row));
  change({ pointed: disc ? biggestOf(disc) : null });
  hoveredRow = row ? state.map.rows[row.index] : null;
  if (disc) {
    const more = disc.members.length > 1 ? [`${disc.members.length} prototypes merged`] : [];
    tip([titleOf(biggestOf(disc)), ...more, `${whole(disc.size)} rows`], x, y);
  } else if (row) fetchRow(hoveredRow, x, y);
  else tip(null);
}

function zoom(factor, x, y) {
  const wanted = Math.min(40, Math.max(1, scene.view.zoom * factor));
  const [across, up] = [(2 * (x - scene.width / 2)) / (scene.width - 2 * MARGIN), (2 * (scene.height / 2 - y)) / (scene.height - 2 * MARGIN)];
  scene.view.x += across / scene.view.zoom - across / wanted;
  scene.view.y += up / scene.view.zoom - up / wanted;
  scene.view.zoom = wanted;
  if (wanted === 1) wholeView();
  else scene.canvas.classList.add("near"); // a finger then moves the map, not the page
  draw();
}
