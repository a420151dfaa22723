// Where to read on about what the table of messages does not know: pages of the course,
// and the trackers of libraries. As places.py of packages/torch_messages, which says why,
// and with the same numbers, expressions and words: its places.json. A test holds that
// both give the same answers.
"use strict";

// data: what places.json holds. searchPlaces(data)(text, most): [[title, address], …]
const searchPlaces = data => {
  const {rules, pages, places, site} = data;
  const CHINESE = new RegExp(rules.CHINESE), WORD = new RegExp(rules.WORD, "g");
  const ENDING = new RegExp(rules.ENDING), ASKING = new Set(rules.ASKING.split(" "));
  const pairs = word => Array.from({length: word.length - 1}, (_, n) => word.slice(n, n + 2));
  const words = text => (text.toLowerCase().match(WORD) ?? [])
    .flatMap(word => CHINESE.test(word) ? pairs(word) : [word.replace(ENDING, "")])
    .filter(word => !ASKING.has(word));
  const known = places.map(([title, short, more]) => ({
    title, short, head: new Set(words(title)), every: new Set(words(`${title} ${more}`)),
  }));
  const counts = new Map();
  for (const {every} of known)
    for (const word of every) counts.set(word, (counts.get(word) ?? 0) + 1);
  const weight = word => {
    const count = counts.get(word) ?? 0;
    return (CHINESE.test(word) && !count ? rules.LESS : 1)
      * Math.log((known.length + 1) / (1 + count));
  };
  const sum = some => some.reduce((total, word) => total + weight(word), 0);
  const address = short => {
    const [page, anchor] = short.split("#");
    return `${site}${pages[page]}#${anchor}`;
  };

  return (text, most = 3) => {
    const asked = text.length > rules.QUESTION ? [] : [...new Set(words(text))].sort();
    if (!asked.length || asked.length > rules.LONG) return [];
    const whole = sum(asked), scores = new Map();
    for (const {title, short, head, every} of known) {
      if (CHINESE.test(title) !== CHINESE.test(text)) continue;
      const common = sum(asked.filter(word => every.has(word)));
      if (common < rules.LEAST || common < rules.SHARE * whole) continue;
      const inTitle = sum(asked.filter(word => head.has(word)));
      const others = [...every].filter(word => !asked.includes(word)).length;
      const raw = common + rules.TITLE * inTitle - rules.MORE * others;
      const score = Math.round(raw * 1e6) / 1e6;
      if (!scores.has(short) || score > scores.get(short)[0]) scores.set(short, [score, title]);
    }
    return [...scores]
      .sort(([one, [less]], [other, [more]]) => more - less || (one < other ? -1 : 1))
      .slice(0, most).map(([short, [, title]]) => [title, address(short)]);
  };
};

// trackerOf(data)(text): [name, "owner/repository", whether it is foreign]
const trackerOf = data => {
  const {rules} = data;
  const FRAME = new RegExp(rules.FRAME), PASSES = new RegExp(rules.PASSES);
  const INSTALLED = new RegExp(rules.INSTALLED), CLASS = new RegExp(rules.CLASS);
  const ERROR = new RegExp(rules.ERROR), PYTHON = rules.PYTHON.split(" ");
  const trackers = data.trackers.map(
    ([name, repository, packages, words, classes, foreign]) => {
      const some = words || packages.split(" ").join("|");
      return {
        packages: packages.split(" "), foreign: Boolean(foreign),
        told: [name, repository, Boolean(foreign)],
        words: new RegExp(`(?<![\\w-])(?:${some})(?![\\w-])`, "i"),
        classes: classes ? new RegExp(`^(?:${classes})$`) : null,
      };
    });
  const pytorch = trackers.at(-1);
  const ofPackage = name => trackers.find(each => each.packages.includes(name))?.told;

  function ofFrames(lines) {
    for (const line of [...lines].reverse()) {
      const path = line.match(FRAME)?.slice(1).find(Boolean);
      if (!path || PASSES.test(path)) continue;
      const inside = path.match(INSTALLED)?.[1];
      if (inside) {
        const stranger = pytorch.words.test(lines.join("\n")) ? null : [inside, "", true];
        return ofPackage(inside) ?? stranger;
      }
      return path.split(/[/\\]/).includes("ComfyUI") ? ofPackage("ComfyUI") : null;
    }
    return null;
  }

  const byClass = (name, line) =>
    trackers.some(each => !each.foreign && each.words.test(line)) ? null
      : trackers.find(each => each.classes?.test(name))?.told;

  function ofClass(lines) {
    for (const line of [...lines].reverse()) {
      const found = line.match(CLASS);
      if (!found) continue;
      const top = found[1].split(".")[0], name = found[2];
      const told = top ? ofPackage(top) : byClass(name, line);
      if (told) return told;
      if (ERROR.test(name)) return top && !PYTHON.includes(top) ? [top, "", true] : null;
    }
    return null;
  }

  function ofWords(lines) {
    const said = lines.filter(line => !FRAME.test(line)), whole = said.join("\n");
    const errors = said.filter(line => /error|exception/i.test(line));
    const alone = !pytorch.words.test(whole);
    const parts = errors.length ? [[errors.at(-1), alone], [whole, false]] : [[whole, alone]];
    for (const [part, foreign] of parts) {
      const found = trackers.find(
        each => (foreign || !each.foreign) && each.words.test(part));
      if (found) return found.told;
    }
    return null;
  }

  return text => {
    const lines = text.slice(-rules.TAIL).split(/\r\n|\r|\n/);
    return ofFrames(lines) ?? ofClass(lines) ?? ofWords(lines) ?? pytorch.told;
  };
};
