// What test_pages.py asks of a page: `checks.name(…)` in the page.
"use strict";

window.checks = {
  // Texts that are shown smaller than so many px, as "size: text".
  smallText(smallest) {
    const found = [], outside = "svg, math, script, style, noscript, .explorer-says";
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.data.trim();
      const parent = walker.currentNode.parentElement;
      if (!text || parent.closest(outside)) continue;
      const size = parseFloat(getComputedStyle(parent).fontSize);
      if (size < smallest && parent.checkVisibility({visibilityProperty: true})) {
        found.push(`${size} px: ${text.slice(0, 40)}`);
      }
    }
    return [...new Set(found)];
  },

  // What sticks out at the right, if the page can be scrolled sideways. Furo hides
  // that, so it is undone first.
  tooWide() {
    const page = document.documentElement, found = [];
    page.style.overflowX = "visible";
    const width = page.clientWidth;
    if (page.scrollWidth > width) {
      for (const element of document.body.querySelectorAll("*")) {
        const right = element.getBoundingClientRect().right;
        if (right > width + 1) {
          found.push(`${element.tagName}.${element.className} to ${Math.round(right)} px`);
        }
      }
    }
    page.style.overflowX = "";
    return found.slice(0, 5);
  },

  // Words and names that go on in the next line, as "name in its line". Those that are
  // longer than `most` letters may.
  brokenWords(most) {
    const found = [], range = document.createRange();
    const texts = document.createTreeWalker(
      document.querySelector("article"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (text.parentElement.closest("svg, script, style, math, .explorer-says")) continue;
      for (const {0: word, index} of text.data.matchAll(/[A-Za-z0-9_]{2,}/g)) {
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        const parts = [...range.getClientRects()];
        if (word.length <= most && parts.length > 1 && parts.at(-1).top - parts[0].top > 5)
          found.push(`${word} in ${text.parentElement.innerText.slice(0, 60)}`);
      }
    }
    return found;
  },

  // Show all that is folded, load pictures that wait for the reader to come near. Of
  // the thousands of colored words of code, a page keeps the first of each kind and
  // place for axe, whose work on contrast would take minutes.
  async showAll() {
    for (const details of document.querySelectorAll("details")) details.open = true;
    const kinds = new Set();
    for (const word of document.querySelectorAll(".highlight span[class]")) {
      const place = word.closest("[class*=highlight-]").parentElement.className;
      const kind = `${word.className} in ${place}`;
      kinds.has(kind) ? word.replaceWith(...word.childNodes) : kinds.add(kind);
    }
    const images = [...document.images];
    for (const image of images) image.loading = "eager";
    await Promise.all(images.map(image => image.decode()));
  },

  // Of the element that has the focus, the first time: [HTML, whether its focus is
  // visible, whether it is in view].
  markFocused() {
    const element = document.activeElement, style = getComputedStyle(element);
    if (element === document.body || "reached" in element.dataset) return null;
    element.dataset.reached = "";
    const box = element.getBoundingClientRect();
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    const opaque = element.checkVisibility({opacityProperty: true, visibilityProperty: true});
    return [
      element.outerHTML.slice(0, 120),
      element.matches(":focus-visible") && outlined && opaque,
      box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    ];
  },

  // What the keyboard must reach and has not: what is shown and can be operated.
  notReached() {
    const operable = "a[href], button, summary, input, select, textarea, [tabindex='0']";
    return [...document.querySelectorAll(operable)]
      .filter(element => !("reached" in element.dataset))
      .filter(element => !element.disabled && element.tabIndex >= 0)
      .filter(element => element.checkVisibility({visibilityProperty: true}))
      .filter(element => element.getClientRects().length)
      .map(element => element.outerHTML.slice(0, 120));
  },
};
