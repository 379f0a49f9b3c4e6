// Elements from data. Texts only ever become text nodes: whatever a row holds, it is shown, not run.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${Math.round(100 * share)} %`;
}

export function short(number) {
  if (number === null || number === undefined) return "?";
  return Number(number.toPrecision(3)).toString();
}

export const whole = (number) => number.toLocaleString("en-GB");

export function debounced(work, milliseconds) {
  let waiting;
  return (...given) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => work(...given), milliseconds);
  };
}

export function clipped(text, most) {
  const letters = text.length > most ? Array.from(text.slice(0, 2 * most)) : [];
  return letters.length > most ? `${letters.slice(0, most).join("")}…` : text;
}
