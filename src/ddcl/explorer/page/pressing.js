// Between the press of a button and its click nothing on the page may be replaced or move, or the click is lost.

let pressed = false;
const waiting = [];

function release() {
  pressed = false;
  setTimeout(() => waiting.splice(0).forEach((resume) => resume())); // the click comes with the release, before this
}

window.addEventListener("pointerdown", () => { pressed = true; }, true);
window.addEventListener("pointerup", release, true);
window.addEventListener("pointercancel", release, true);

export const released = () => new Promise((resume) => {
  if (pressed) waiting.push(resume);
  else resume();
});
