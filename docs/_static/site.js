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

// A question: its options become buttons; the one that is chosen is kept, and opens the
// answer.
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
  const mark = (guess) => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", button.textContent === guess);
    }
    said.textContent = guess === null ? "" : `You said: ${guess}`;
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      kept.set(`predict ${key}`, button.textContent);
      mark(button.textContent);
      for (const answer of answers) {
        answer.open ||= answer.dataset.key === key;
      }
    });
  }
  question.append(said);
  mark(kept.get(`predict ${key}`));
}

// One switch for all answers, the same on each page.
const all = document.querySelector("button.show-answers");
if (all) {
  const show = (open) => {
    all.setAttribute("aria-pressed", open);
    for (const answer of answers) {
      answer.open = open;
    }
  };
  all.hidden = false;
  all.addEventListener("click", () => {
    const open = all.getAttribute("aria-pressed") !== "true";
    kept.set("show all answers", open);
    show(open);
  });
  if (kept.get("show all answers") === "true") {
    show(true);
  }
}

// A link into something that is folded opens it.
const openTarget = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
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
for (const place of document.querySelectorAll("pre, .table-wrapper, .math-wrapper")) {
  scrolls.observe(place);
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
