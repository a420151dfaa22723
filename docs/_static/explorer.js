/* The explorers: pictures drawn beforehand (tools/site/explorers.py), chosen by
   controls.

   Each picture is put together from a list in which every different tag stands once.
   The list of a page is fetched by a script element, which works from a folder as well,
   when the reader comes near its figure. */
"use strict";

window.deviceLab = window.deviceLab || {};

{
  const found = {};  // number of a lesson → what its script holds
  const boxes = [...document.querySelectorAll(".explorer")];

  // What a script brings: JSON, compressed by gzip, as text in base64.
  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const packed = new Blob([bytes]).stream();
    return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
  }

  const position = field => Number(
    field.type === "checkbox" ? field.checked : field.value);

  function show(box) {
    const data = found[box.dataset.explorer];
    const picture = box.querySelector(".explorer-picture");
    let at = 0;
    Object.values(data.controls).forEach((control, n) => {
      const field = box.fields[n], text = control.texts[position(field)];
      at = at * control.texts.length + position(field);
      if (field.type === "range") {
        field.setAttribute("aria-valuetext", text);
        field.nextElementSibling.value = text;
      }
    });
    const svg = data.pictures[at].map(tag => data.tags[tag]).join("");
    const head = box.querySelector(".explorer-head");
    head.textContent = narrow.matches ? data.heads[at].join(" · ") : "";
    picture.innerHTML = narrow.matches
      ? panels(svg, data.cuts[at], box.dataset.scale) : svg;
    picture.setAttribute("aria-label", data.alts[at]);
  }

  // On a phone: the panels of a figure below each other, without the lines above them.
  const narrow = matchMedia("(max-width: 40em)"), HEAD = 36;  // points
  function panels(svg, cuts, scale) {
    const [, width, height] = svg.match(/viewBox="0 0 ([\d.]+) ([\d.]+)"/);
    const ends = [...cuts, Number(width)];
    return [0, ...cuts].map((left, n) => svg.replace(/^<svg[^>]*>/, open => {
      const wide = ends[n] - left;
      return open.replace(/ (width|height)="[^"]*"/g, "")
        .replace(/viewBox="[^"]*"/,
          `viewBox="${left} ${HEAD} ${wide} ${height - HEAD}"`)
        .replace("<svg", `<svg style="min-width: ${Math.round(wide * scale)}px"`);
    })).join("");
  }

  // Where the figure is wider than the page, the keyboard can scroll it.
  function reach(view) {
    if (view.scrollWidth > view.clientWidth + 1) {
      view.tabIndex = 0;
      view.setAttribute("role", "group");
      view.setAttribute("aria-label", "Figure, wider than the page");
    } else {
      ["tabindex", "role", "aria-label"].forEach(name => view.removeAttribute(name));
    }
  }

  function begin(box) {
    box.fields = box.querySelectorAll("input, select");
    const says = box.querySelector(".explorer-says");
    const picture = box.querySelector(".explorer-picture");
    for (const field of box.fields) {
      field.addEventListener("input", () => show(box));
      field.addEventListener("change", () => {
        says.textContent = picture.getAttribute("aria-label");
      });
    }
    narrow.addEventListener("change", () => show(box));
    show(box);  // a browser keeps what stood in the fields of a page that is reloaded
    box.querySelector("fieldset").disabled = false;
    box.dataset.ready = "";
  }

  function fail(box) {
    const note = box.querySelector(".explorer-note");
    note.textContent = "The pictures could not be loaded.";
  }

  // What each script calls.
  window.deviceLab.explorer = async (number, text) => {
    const its = boxes.filter(box => box.dataset.explorer === number);
    try {
      found[number] = await unpack(text);
    } catch {  // a browser from before 2023
      its.forEach(fail);
      return;
    }
    its.forEach(begin);
  };

  function fetchFor(box) {
    if (box.dataset.asked !== undefined) return;
    box.dataset.asked = "";
    const script = document.createElement("script");
    script.src = box.dataset.script;
    script.onerror = () => fail(box);
    document.head.append(script);
  }

  const near = new IntersectionObserver(
    entries => entries.filter(entry => entry.isIntersecting)
      .forEach(entry => fetchFor(entry.target)),
    {rootMargin: "800px"},
  );
  const size = new ResizeObserver(
    entries => entries.forEach(entry => reach(entry.target)));
  for (const box of boxes) {
    near.observe(box);
    size.observe(box.querySelector(".explorer-window"));
    for (const event of ["pointerdown", "focusin"]) {
      box.addEventListener(event, () => fetchFor(box));
    }
  }
}
