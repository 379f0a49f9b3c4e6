// Draws the map: rows as dots, prototypes as discs with titles, what is read as a ring tied to its prototypes.

import { colourOf, inkOf } from "./colours.js";
import { clipped } from "./dom.js";
import { answerShares, centroid } from "./places.js";
import { biggestOf, discs, onScreen, scene } from "./scene.js";
import { state, titleOf } from "./state.js";

const LABELS = 14;
let pen;

export function draw() {
  if (!scene.shown || !scene.width) return;
  pen = scene.pen;
  pen.clearRect(0, 0, scene.width, scene.height);
  const chosen = state.pointed ?? state.selected;
  const lit = chosen === null ? null : scene.shown.groups[chosen];
  drawRows(lit);
  const all = discs();
  const shares = answerShares();
  if (shares) drawTies(all, shares);
  drawDiscs(all, lit);
  const answer = shares ? onScreen(centroid(scene.shown.places, shares)) : null;
  drawLabels(all, lit, answer);
  if (answer) drawAnswer(answer);
}

function drawRows(lit) {
  const radius = Math.min(3.4, 1.5 * Math.sqrt(scene.view.zoom));
  state.map.prototype.forEach((prototype, index) => {
    const group = scene.shown.groups[prototype];
    const [x, y] = onScreen(scene.shown.rows[index]);
    if (x < -5 || y < -5 || x > scene.width + 5 || y > scene.height + 5) return;
    pen.fillStyle = colourOf(group, lit === null ? 0.5 : group === lit ? 0.9 : 0.12);
    pen.beginPath();
    pen.arc(x, y, group === lit ? radius + 0.6 : radius, 0, 2 * Math.PI);
    pen.fill();
  });
}

function drawDiscs(all, lit) {
  for (const one of all) {
    const [x, y] = onScreen(one.place);
    pen.beginPath();
    pen.arc(x, y, one.radius, 0, 2 * Math.PI);
    pen.fillStyle = colourOf(one.group, lit === null || lit === one.group ? 0.95 : 0.35);
    pen.fill();
    pen.lineWidth = lit === one.group ? 2.5 : 1.25;
    pen.strokeStyle = lit === one.group ? inkOf("--ink") : inkOf("--surface");
    pen.stroke();
  }
}

// lines from the text to the prototypes it is a mixture of, as broad as their share
function drawTies(all, shares) {
  const from = onScreen(centroid(scene.shown.places, shares));
  for (const one of all) {
    const share = one.members.reduce((sum, number) => sum + shares[number], 0);
    if (share < 0.02) continue;
    const to = onScreen(one.place);
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.lineWidth = 1 + 7 * share;
    pen.strokeStyle = colourOf(one.group, 0.75);
    pen.stroke();
  }
}

function drawAnswer([x, y]) {
  for (const [colour, line] of [[inkOf("--surface"), 5], [inkOf("--ink"), 2.25]]) {
    pen.beginPath();
    pen.arc(x, y, 7, 0, 2 * Math.PI);
    pen.lineWidth = line;
    pen.strokeStyle = colour;
    pen.stroke();
  }
}

function drawLabels(all, lit, answer) {
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const taken = answer ? [[answer[0] - 9, answer[1] - 9, 18, 18]] : [];
  const inOrder = [...all.filter((one) => one.group === lit), ...all.filter((one) => one.group !== lit)];
  let left = Math.round(LABELS * Math.min(1, scene.width / 560) * Math.min(2.5, scene.view.zoom));
  for (const one of inOrder) {
    if (left <= 0) break;
    const others = one.members.length - 1;
    const said = clipped(titleOf(biggestOf(one)), 26) + (others ? ` + ${others}` : "");
    const [x, y] = onScreen(one.place);
    const broad = pen.measureText(said).width;
    const right = x + one.radius + 5 + broad < scene.width;
    const box = [right ? x + one.radius + 3 : x - one.radius - broad - 7, y - 9, broad + 6, 18];
    if (box[0] < 2 || y < 10 || y > scene.height - 10 || x < 0 || x > scene.width) continue;
    if (taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    left -= 1;
    pen.globalAlpha = lit === null || lit === one.group ? 1 : 0.45;
    pen.lineWidth = 3.5;
    pen.lineJoin = "round";
    pen.strokeStyle = inkOf("--surface");
    pen.strokeText(said, box[0] + 3, y);
    pen.fillStyle = inkOf("--ink");
    pen.fillText(said, box[0] + 3, y);
    pen.globalAlpha = 1;
  }
}

const overlap = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
