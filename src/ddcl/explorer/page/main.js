// Begins: asks for the run, then for its map and phases, and shows each part when it is there.

import { byId, element, percent, short, whole } from "./dom.js";
import { drawMap } from "./map.js";
import { complain } from "./notices.js";
import { showPrototypes } from "./prototypes.js";
import { showReading } from "./reading.js";
import { showRows } from "./rows.js";
import { get } from "./server.js";
import { change, listen, state } from "./state.js";
import { showTemperature } from "./temperature.js";

function showRun() {
  const { settings, result, name } = state.run;
  document.title = `${name} · ddcl explorer`;
  byId("run-name").textContent = name;
  const verdict = byId("verdict");
  verdict.classList.add(result.healthy ? "good" : "bad");
  verdict.textContent = result.healthy ? "healthy" : "not healthy";
  byId("troubles").hidden = !result.troubles.length;
  byId("troubles").replaceChildren(...result.troubles.map((trouble) => element("li", {}, trouble)));
  const facts = [`${whole(settings.rows)} rows`, `${whole(settings.prototypes)} prototypes`, `read at ${short(result.reading.temperature / result.reading.critical)} T_c`];
  if (result.accuracy) facts.push(`accuracy ${percent(result.accuracy.head)} on ${whole(result.accuracy.held_out_rows)} held-out rows`);
  byId("facts").replaceChildren(...facts.map((fact) => element("span", {}, fact)));
}

function chooseLayout() {
  const radios = document.querySelectorAll("input[name=layout]");
  document.querySelector(".choices").hidden = !state.map.neighbours;
  for (const radio of radios) radio.addEventListener("change", () => change({ layout: radio.value }));
  listen(["layout"], () => { for (const radio of radios) radio.checked = radio.value === state.layout; });
}

async function begin() {
  const [run, map, phases] = await Promise.all(["api/run", "api/map", "api/phases"].map(get));
  change({ run, map, phases, layout: map && !map.neighbours ? "plane" : "neighbours" });
  showRun();
  if (map) {
    chooseLayout();
    drawMap();
  } else document.querySelector(".mapped").hidden = true; // there are no embeddings to draw any more
  showReading();
  showPrototypes();
  showRows();
  if (map && phases) showTemperature();
  document.body.dataset.ready = "true";
}

begin().catch((error) => complain("beginning", error.message));
