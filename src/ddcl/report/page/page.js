"use strict";
// What the page can do beyond being read: point at rows, follow a prototype, search, read numbers off the lines.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const percent = (share) => `${Math.round(100 * share)} %`;
  const make = (name, className, text) => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text; // texts are data: never markup
    return element;
  };
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;

  const map = byId("map");
  if (map) theMap();
  theCards();
  thePanels();

  function theMap() {
    const figure = map.closest(".map"), tip = byId("tip"), layout = byId("layout"), highlight = byId("highlight");
    const points = [...map.querySelectorAll(".points circle")], marks = [...map.querySelectorAll(".marks g")];
    let places = data.layouts[layout.value], pointed = null;

    layout.addEventListener("change", () => {
      places = data.layouts[layout.value];
      points.forEach((point, i) => {
        point.setAttribute("cx", places.rows[i][0]);
        point.setAttribute("cy", places.rows[i][1]);
      });
      marks.forEach((mark, k) => mark.setAttribute("transform", `translate(${places.prototypes[k].join(" ")})`));
      point_at(null);
    });

    function choose(prototype) {
      const name = prototype === null ? "" : String(prototype);
      figure.classList.toggle("chosen", prototype !== null);
      for (const element of [...points, ...marks]) element.classList.toggle("own", element.dataset.p === name);
      for (const card of document.querySelectorAll(".card")) card.classList.toggle("own", card.id === `p${name}`);
      highlight.value = [...highlight.options].some((option) => option.value === name) ? name : "";
      const chosen = byId("chosen");
      chosen.replaceChildren();
      if (prototype === null) return;
      chosen.append(`${data.sizes[prototype].toLocaleString("en")} rows of `);
      const title = make(data.cards.includes(prototype) ? "a" : "span", "", `${prototype} ${data.titles[prototype]}`);
      if (title.tagName === "A") title.href = `#p${prototype}`;
      chosen.append(title);
    }
    highlight.addEventListener("change", () => choose(highlight.value === "" ? null : Number(highlight.value)));

    // the row nearest to a place in the picture, if it is near
    function nearest(event) {
      const box = map.getBoundingClientRect(), view = map.viewBox.baseVal;
      const x = ((event.clientX - box.left) / box.width) * view.width;
      const y = ((event.clientY - box.top) / box.height) * view.height;
      const reach = (event.pointerType === "touch" ? 22 : 12) * (view.width / box.width);
      let best = null, closest = reach * reach;
      places.rows.forEach(([px, py], i) => {
        const distance = (px - x) ** 2 + (py - y) ** 2;
        if (distance < closest) [best, closest] = [i, distance];
      });
      return best;
    }

    function point_at(i) {
      if (pointed !== null) points[pointed].classList.remove("pointed");
      pointed = i;
      tip.hidden = i === null;
      if (i === null) return;
      points[i].classList.add("pointed");
      const row = data.rows[i];
      const said = make("p", "said", row.text === null ? `row ${row.row}` : row.text);
      said.dir = "auto";
      tip.replaceChildren(said);
      if (row.label !== null) tip.append(make("p", "figures", `label ${row.label}`));
      for (const [k, share] of row.shares) {
        if (share >= 0.005) tip.append(make("p", "figures", `${percent(share)} ${k} ${data.titles[k]}`));
      }
      const box = map.getBoundingClientRect(), view = map.viewBox.baseVal, scale = box.width / view.width;
      const x = places.rows[i][0] * scale, y = places.rows[i][1] * scale;
      const left = x + 14 + tip.offsetWidth > box.width ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.left = `${Math.max(4, Math.min(left, box.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(4, Math.min(y - tip.offsetHeight / 2, box.height - tip.offsetHeight - 4))}px`;
    }
    map.addEventListener("pointermove", (event) => point_at(nearest(event)));
    map.addEventListener("pointerleave", (event) => event.pointerType === "touch" || point_at(null));
    map.addEventListener("click", (event) => {
      const mark = event.target.closest(".marks g");
      if (mark) {
        choose(Number(mark.dataset.p));
        const card = byId(`p${mark.dataset.p}`);
        if (card) {
          reveal(card);
          location.hash = card.id;
        }
        return;
      }
      const i = nearest(event);
      point_at(i);
      choose(i === null ? null : Number(points[i].dataset.p));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        point_at(null);
        choose(null);
      }
    });
  }

  // makes sure that a card can be seen, whatever was searched for
  function reveal(card) {
    if (card.hidden) {
      byId("search").value = "";
      byId("more").click();
    }
    card.scrollIntoView();
  }

  function theCards() {
    const FIRST = 24; // of many cards the rest waits for being asked for
    const cards = [...document.querySelectorAll(".card")], search = byId("search"), more = byId("more");
    const words = cards.map((card) => card.textContent.toLowerCase());
    let all = cards.length <= FIRST;
    function show() {
      const wanted = search.value.trim().toLowerCase(), number = /^\d+$/.test(wanted);
      let found = 0;
      cards.forEach((card, i) => {
        const fits = number ? card.id === `p${wanted}` : words[i].includes(wanted);
        card.hidden = wanted === "" ? !all && i >= FIRST : !fits;
        found += fits ? 1 : 0;
      });
      byId("found").textContent = wanted === "" ? "" : `${found} of ${cards.length}`;
      more.parentElement.hidden = all || wanted !== "";
    }
    search.addEventListener("input", show);
    more.addEventListener("click", () => {
      all = true;
      show();
    });
    addEventListener("beforeprint", () => more.click());
    const linked = () => {
      const card = byId(location.hash.slice(1));
      if (card && card.matches(".card")) reveal(card);
    };
    addEventListener("hashchange", linked);
    // a link to where the address points already changes no hash
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#p']");
      if (link && link.hash === location.hash) linked();
    });
    show();
    linked();
  }

  function thePanels() {
    for (const figure of document.querySelectorAll("[data-panel]")) {
      const { names, lines } = data.panels[Number(figure.dataset.panel)];
      if (!lines.length || data.epochs.length < 2) continue;
      const svg = figure.querySelector("svg"), reading = figure.querySelector(".reading");
      const caption = figure.querySelector("figcaption");
      const cursor = document.createElementNS(svg.namespaceURI, "line");
      cursor.setAttribute("class", "cursor");
      const [left, right, top, bottom] = [46, 322, 10, 162]; // the frame of every panel, as dynamics.py draws it
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
        const share = Math.max(0, Math.min(1, (x - left) / (right - left)));
        const i = Math.round(share * (data.epochs.length - 1));
        const at = left + (i / (data.epochs.length - 1)) * (right - left);
        for (const [name, value] of [["x1", at], ["x2", at], ["y1", top], ["y2", bottom]]) cursor.setAttribute(name, value);
        svg.append(cursor);
        const values = names.map((name, j) => `${lines.length > 1 ? `${name} ` : ""}${short(lines[j][i])}`);
        reading.textContent = `epoch ${data.epochs[i]}: ${values.join(", ")}`;
        reading.hidden = false;
        caption.hidden = true;
      });
      svg.addEventListener("pointerleave", () => {
        cursor.remove();
        reading.hidden = true;
        caption.hidden = false;
      });
    }
  }

  function short(value) {
    return value === null ? "?" : String(Number(value.toPrecision(4)));
  }
})();
