// What went wrong, above everything: one sentence for each part of the page, which only that part takes back.

import { byId } from "./dom.js";

const sentences = new Map();

export function complain(part, sentence) {
  sentences.delete(part);
  if (sentence) sentences.set(part, sentence);
  const place = byId("notice");
  const said = [...new Set(sentences.values())].join(" ");
  place.hidden = !said;
  if (place.textContent !== said) place.textContent = said;
}
