// Opens the search, on every page: whoever types into the box of the menu, clicks on it,
// or presses "/" gets search-results.js, which is not loaded before.
"use strict";

{
  const root = new URL("..", document.currentScript.src).href;
  const box = document.querySelector(".sidebar-search");
  let loading;
  const loaded = (tag, properties) => new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.addEventListener("load", resolve);
    element.addEventListener("error", reject);
    document.head.append(element);
  });
  const load = () => loading ??= Promise.all([
    loaded("script", { src: `${root}_static/search-results.js` }),
    loaded("link", { rel: "stylesheet", href: `${root}_static/search.css` }),
  ]).then(() => window.pageSearch);
  const open = (text) => load().then((search) => search.open(root, text));
  // all that has been typed until it is loaded
  const typed = () => load().then((search) => {
    const text = box.value;
    box.value = "";
    if (text) search.open(root, text);
  });

  box?.addEventListener("input", (event) => event.isComposing || typed());
  box?.addEventListener("compositionend", typed);  // Chinese, by an input method
  box?.addEventListener("click", () => open(""));
  box?.form.addEventListener("submit", (event) => {
    event.preventDefault();
    open(box.value);
  });
  // before Sphinx's own script, which looks for a box that a narrow page hides
  addEventListener("keydown", (event) => {
    const writes = /^(?:input|textarea|select)$/i.test(document.activeElement.tagName);
    const others = event.altKey || event.ctrlKey || event.metaKey;
    if (event.key !== "/" || writes || others) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    open("");
  }, true);

  const page = document.getElementById("search-page");
  if (page) load().then((search) => search.show(root, page));
}
