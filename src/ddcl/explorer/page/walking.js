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
    tip([clipped(said, 220), `${clipped(titleOf(row.prototype), 80)}, ${Math.round(100 * row.confidence)} %${row.label ? ` · ${clipped(row.label, 60)}` : ""}`], x, y);
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
  const held = { on: false, moved: false, touch: false, x: 0, y: 0 };
  const at = (event) => [event.offsetX, event.offsetY];
  scene.canvas.addEventListener("pointerdown", (event) => {
    Object.assign(held, { on: true, moved: false, touch: event.pointerType === "touch", x: event.offsetX, y: event.offsetY });
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
    if (event.pointerType !== "touch") point(x, y); // a finger does not hover
  });
  scene.canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  scene.canvas.addEventListener("blur", leave);
  scene.canvas.addEventListener("click", (event) => {
    if (held.moved) return;
    const disc = nearestDisc(...at(event));
    const row = disc ? null : nearestRow(...at(event));
    if (held.touch && row && hoveredRow !== state.map.rows[row.index]) {
      point(...at(event)); // the first tap reads the row, the next one chooses its prototype
      return;
    }
    if (held.touch) leave();
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
      const all = discs();
      const now = all.findIndex((disc) => disc.members.includes(state.pointed ?? state.selected));
      const disc = all[(Math.max(now, steps[event.key] < 0 ? 0 : -1) + steps[event.key] + all.length) % all.length];
      change({ pointed: biggestOf(disc) });
      tip(about(disc), ...onScreen(disc.place));
      byId("map-said").textContent = about(disc).join(", ");
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

function leave() {
  hoveredRow = null;
  tip(null);
  byId("map-said").textContent = "";
  change({ pointed: null });
}

function about(disc) {
  const more = disc.members.length > 1 ? [`${disc.members.length} prototypes merged`] : [];
  return [clipped(titleOf(biggestOf(disc)), 220), ...more, `${whole(disc.size)} rows`];
}

function point(x, y) {
  const disc = nearestDisc(x, y);
  const row = disc ? null : nearestRow(x, y);
  scene.canvas.classList.toggle("over", Boolean(disc || row));
  change({ pointed: disc ? biggestOf(disc) : null });
  hoveredRow = row ? state.map.rows[row.index] : null;
  if (disc) tip(about(disc), x, y);
  else if (row) fetchRow(hoveredRow, x, y);
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
