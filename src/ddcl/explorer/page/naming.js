// A prototype's name, changed where it stands and kept by the server in the run folder.

import { clipped, element } from "./dom.js";
import { complain } from "./notices.js";
import { released } from "./pressing.js";
import { put } from "./server.js";
import { change, listen, nameOf, state, titleOf } from "./state.js";

// a title that follows its prototype's name: what is around it stays, and so do the focus and a click under way
export const titled = (number, properties = {}, most = Infinity) =>
  element("span", { dir: "auto", ...properties, "data-titled": number, "data-most": most }, clipped(titleOf(number), most));

const renaming = (number) => `Rename ${titleOf(number)}`;

export const renameButton = (number, onclick) =>
  element("button", { type: "button", class: "edit", title: "rename", "aria-label": renaming(number), "data-renames": number, onclick }, "✎");

listen(["run"], () => {
  for (const one of document.querySelectorAll("[data-titled]")) one.textContent = clipped(titleOf(Number(one.dataset.titled)), Number(one.dataset.most));
  for (const one of document.querySelectorAll("[data-renames]")) one.setAttribute("aria-label", renaming(Number(one.dataset.renames)));
  for (const one of document.querySelectorAll(".name-field")) if (one !== document.activeElement) one.value = nameOf(Number(one.dataset.names)) ?? "";
});

async function rename(number, name) {
  if (name.trim() === (nameOf(number) ?? "")) return;
  let { names } = state.run;
  try {
    names = (await put(`api/prototypes/${number}/name`, { name })).names;
    complain("naming", "");
  } catch (error) {
    complain("naming", error.message);
  }
  await released();
  change({ run: { ...state.run, names } }); // after a failure it shows the name it still has
}

// a field that looks like a title until it is used; when it is left, `done` puts the focus where it belongs
export function nameField(number, done) {
  let keep = true;
  let byKey = false;
  const field = element("input", {
    type: "text", class: "name-field", maxlength: 1000, dir: "auto", value: nameOf(number) ?? "", "data-names": number,
    placeholder: state.run.titles[number], "aria-label": `Name of prototype ${number}; empty takes it away`,
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      byKey = true;
      if (event.key === "Escape") {
        keep = false;
        field.value = nameOf(number) ?? "";
      }
      field.blur();
    },
    onblur: async () => {
      if (keep) await rename(number, field.value);
      await released();
      const lost = byKey && document.activeElement === document.body;
      keep = true;
      byKey = false;
      done(field, lost);
    },
  });
  return field;
}
