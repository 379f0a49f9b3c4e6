// A colour for each prototype from its place on the map, so that neighbours look alike and what is far looks different.

let hues = [];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function colourBy(positions) {
  const middle = [0, 1].map((axis) => positions.reduce((sum, place) => sum + place[axis], 0) / positions.length);
  const away = positions.map((place) => Math.hypot(place[0] - middle[0], place[1] - middle[1]));
  const farthest = Math.max(1e-9, ...away);
  hues = positions.map((place, number) => ({
    hue: (Math.atan2(place[1] - middle[1], place[0] - middle[0]) * 180) / Math.PI + 180,
    out: away[number] / farthest,
  }));
}

export function colourOf(number, alpha = 1) {
  const { hue, out } = hues[number] ?? { hue: (number * 137.5) % 360, out: 0.7 }; // no map: spread out by number
  const light = dark.matches ? 0.74 - 0.1 * (1 - out) : 0.58 + 0.1 * (1 - out);
  const strong = 0.06 + 0.075 * out;
  return `oklch(${light.toFixed(3)} ${strong.toFixed(3)} ${hue.toFixed(1)} / ${alpha})`;
}

export function inkOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function onSchemeChange(work) {
  dark.addEventListener("change", work);
}
