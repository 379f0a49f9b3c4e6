// A prototype's name, changed where it stands and kept by the server in the run folder.

import { byId, element } from "./dom.js";
import { put } from "./server.js";
import { change, nameOf, state } from "./state.js";

export async function rename(number, name) {
  if (name.trim() === (nameOf(number) ?? "")) return;
  const notice = byId("notice");
  try {
    const { names } = await put(`api/prototypes/${number}/name`, { name });
    notice.hidden = true;
    change({ run: { ...state.run, names } });
  } catch (error) {
    notice.textContent = error.message;
    notice.hidden = false;
    change({ run: { ...state.run } }); // shows the name it still has
  }
}

// a field that looks like a title until it is used
export function nameField(number, done = () => {}) {
  let keep = true;
  const field = element("input", {
    type: "text", class: "name-field", maxlength: 1000, dir: "auto", value: nameOf(number) ?? "",
    placeholder: state.run.titles[number], "aria-label": `Name of prototype ${number}; empty takes it away`,
    onkeydown: (event) => {
      if (event.key === "Enter") field.blur();
      else if (event.key === "Escape") {
        keep = false;
        field.value = nameOf(number) ?? "";
        field.blur();
      }
    },
    onblur: async () => {
      if (keep) await rename(number, field.value);
      keep = true;
      done();
    },
  });
  return field;
}
