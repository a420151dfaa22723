// Lessons in the browser: guesses are kept, answers open. Without this script every
// `<details>` opens by hand.
"use strict";

const answers = [...document.querySelectorAll("details.answer")];

// What this browser keeps. Where it may keep nothing, it is forgotten with the page.
const kept = {
  get(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch {
      // the page works without
    }
  },
};

// Before what is said of a guess: color alone would not reach everybody.
const WORDS = {right: "✓", wrong: "Not this time."};
// Whether a sentence says so, "You said “yes”, and that is right."
const isRight = (judged, guess) => {
  const bare = (text) => text.replace(/[“”]/g, "");
  return bare(judged).startsWith(`You said ${bare(guess)}, and `);
};

// A question: its options become buttons; the one that is chosen is kept, and opens the
// answer. It is judged while the answer is open: after a reload, too, not before.
for (const question of document.querySelectorAll(".predict")) {
  const key = question.dataset.key;
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  const buttons = [...question.querySelectorAll("li")].map((item) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...item.childNodes);
    item.append(button);
    return button;
  });
  const parts = answers.filter((answer) => answer.dataset.key === key);
  let guess = kept.get(`predict ${key}`);
  const mark = () => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", button.textContent === guess);
    }
    const open = parts.some((answer) => answer.open);
    const chosen = buttons.find((button) => button.textContent === guess);
    const judged = open && chosen?.parentElement.dataset.said;
    said.className = judged ? (isRight(judged, guess) ? "right" : "wrong") : "";
    said.textContent = guess === null ? "" : judged || `You said: ${guess}`;
    if (judged) said.prepend(WORDS[said.className], " ");
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      guess = button.textContent;
      kept.set(`predict ${key}`, guess);
      for (const answer of parts) answer.open = true;
      mark();
    });
  }
  for (const answer of parts) answer.addEventListener("toggle", mark);
  question.append(said);
  mark();
}

// An answer in parts opens and closes as one.
for (const answer of answers.filter((each) => each.dataset.key)) {
  answer.addEventListener("toggle", () => {
    for (const part of answers) {
      if (part.dataset.key === answer.dataset.key) part.open = answer.open;
    }
  });
}

// One switch for all answers of this page.
const all = document.querySelector("button.show-answers");
if (all) {
  all.hidden = false;
  all.addEventListener("click", () => {
    const open = all.dataset.open === undefined;
    open ? (all.dataset.open = "") : delete all.dataset.open;
    all.textContent = open ? "Hide all answers" : "Show all answers";
    for (const answer of answers) {
      answer.open = open;
    }
  });
}

// A link into something that is folded opens it.
const openTarget = () => {
  const hash = decodeURIComponent(location.hash.slice(1));
  const target = document.getElementById(hash);
  if (!target && /-\d+-minutes?$/.test(hash)) {  // an address from before
    location.replace(`#${hash.replace(/-\d+-minutes?$/, "")}`);
  }
  let place = target?.parentElement;
  const folded = place?.closest("details:not([open])");
  for (; place; place = place.parentElement) {
    if (place.tagName === "DETAILS") {
      place.open = true;
    }
  }
  if (folded) {
    target.scrollIntoView();
  }
};
addEventListener("hashchange", openTarget);
openTarget();

// The menu begins where the reader is.
const menu = document.querySelector(".sidebar-scroll");
const here = menu?.querySelector(".current-page > a");
if (here) {
  const distance = here.getBoundingClientRect().top - menu.getBoundingClientRect().top;
  menu.scrollTop = distance - menu.clientHeight / 2;
}

// What is too wide or too long for its place scrolls there: by the keyboard, too.
const scrolls = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const wide = target.scrollWidth > target.clientWidth;
    if (wide || target.scrollHeight > target.clientHeight) {
      target.tabIndex = 0;
    } else {
      target.removeAttribute("tabindex");
    }
  }
});
const scrollable = "pre, .table-wrapper, .math-wrapper, .text_html:has(> table)";
for (const place of document.querySelectorAll(scrollable)) {
  scrolls.observe(place);
}

// A block whose lines wrap, line by line: what goes on is indented further than its
// beginning, and a comment behind code stays in one piece. Also messages.js calls it.
const inLines = (block) => {
  const lines = block.textContent.split(/(?<=\n)/);
  block.replaceChildren(...lines.map((line) => {
    const made = document.createElement("span");
    made.className = "line";
    made.style.setProperty("--in", line.search(/\S|$/));
    const [, code, comment] = /^(.*?\S\s+)(# .*\n?)$/.exec(line) ?? [];
    if (comment) {
      const aside = document.createElement("span");
      aside.className = "aside";
      aside.append(comment);
      made.append(code, aside);
    } else made.append(line);
    return made;
  }));
};
document.querySelectorAll("article .message pre").forEach(inLines);

// On a phone, words of code that are longer than their place go on in the next line, as
// if broken anywhere. Here they are told where: behind a dot, a stroke, a bracket, and in
// a long name behind its underlines. Only there, as what a search highlights must not be
// in pieces.
const LONG = 12, LONG_NAME = 28;  // letters
const JOINT = /(?<=[\w)\]"'][.,/:=([{#)\]]+)(?=["'\w…])(?<!\d[.,:](?=\d))/;
const UNDERLINE = /(?<=[a-z0-9]_)(?=[a-z0-9])/i;
// what keeps its columns scrolls, and is not broken at all
const placesOfCode = "code, a, td, th, .message pre, .said,"
  + " .cell:not(.tag_columns) .output pre";
const atJoints = (word) => {
  const isLong = (part) => part.split(/\W/).some((name) => name.length > LONG_NAME);
  const parts = word.length > LONG ? word.split(JOINT) : [word];
  return parts.flatMap((part) => isLong(part) ? part.split(UNDERLINE) : [part])
    .flatMap((part, n) => n ? [document.createElement("wbr"), part] : [part]);
};
const joints = (root) => {
  const found = [], texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.length > LONG && text.parentElement.closest(placesOfCode)) found.push(text);
  }
  const places = new Set(found.map((text) => text.parentElement));
  for (const text of found) {
    const parts = text.data.split(/(\s+)/).flatMap(atJoints);
    if (parts.some((part) => typeof part !== "string")) text.replaceWith(...parts);
  }
  for (const place of places) place.normalize();  // words beside each other are one text
  for (const code of root.querySelectorAll("code.literal")) {  // an option, such as --steps
    code.classList.toggle("option", /^-\S{1,24}$/.test(code.textContent));
  }
};
const phone = matchMedia("(max-width: 46em)"), article = document.querySelector("article");
// of what has come into the page; messages.js calls it, too
const fitPhone = (root) => phone.matches && joints(root);
if (phone.matches) joints(article);
else {
  phone.addEventListener("change", () => joints(article), {once: true});
  // addresses also elsewhere
  for (const link of article.querySelectorAll("a")) {
    if (link.textContent.startsWith("https://")) joints(link);
  }
}

// A picture that is shown smaller than it is: a tap shows it whole, to scroll in.
const whole = document.createElement("dialog");
whole.className = "whole";
whole.addEventListener("click", () => whole.close());
document.body.append(whole);
const enlarge = (image) => {
  const copy = image.cloneNode();
  copy.loading = "eager";
  whole.replaceChildren(copy, Object.assign(
    document.createElement("button"), {type: "button", textContent: "Close"}));
  whole.showModal();
};
const smaller = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const button = target.parentElement.querySelector("button.enlarge");
    button.hidden = target.clientWidth > 0.8 * target.getAttribute("width");
  }
});
for (const image of document.querySelectorAll(".output img[width]")) {
  const button = document.createElement("button");
  Object.assign(button, {type: "button", className: "enlarge", hidden: true});
  button.textContent = "Enlarge the picture";
  button.addEventListener("click", () => enlarge(image));
  image.addEventListener("click", () => button.hidden || enlarge(image));
  image.after(button);
  smaller.observe(image);
}

// On paper nothing can be opened: answers are printed.
let opened = [];
addEventListener("beforeprint", () => {
  opened = answers.filter((answer) => !answer.open);
  for (const answer of opened) {
    answer.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const answer of opened) {
    answer.open = false;
  }
});
