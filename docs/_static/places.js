// Where to read on about what the table of messages does not know: pages of the course,
// and the trackers of libraries. As places.py of packages/torch_messages, which says why,
// and with the same numbers, expressions and words: its places.json. A test holds that
// both give the same answers.
"use strict";

// data: what places.json holds; said: what phrasesOf gives.
// searchPlaces(data, said)(text, most): [[title, address], …]
const searchPlaces = (data, said) => {
  const {rules, pages, places, site} = data;
  const CHINESE = new RegExp(rules.CHINESE), WORD = new RegExp(rules.WORD, "g");
  const ENDING = new RegExp(rules.ENDING), ASKING = new Set(rules.ASKING.split(" "));
  const pairs = word => Array.from({length: word.length - 1}, (_, n) => word.slice(n, n + 2));
  const words = text => (text.toLowerCase().match(WORD) ?? [])
    .flatMap(word => CHINESE.test(word) ? pairs(word) : [word.replace(ENDING, "")])
    .filter(word => !ASKING.has(word));
  const known = places.map(([title, short, more = ""]) => ({
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

  function search(text, least) {
    const asked = [...new Set(words(text))].sort();
    if (!asked.length || asked.length > rules.LONG) return [];
    const whole = sum(asked), scores = new Map();
    for (const {title, short, head, every} of known) {
      if (CHINESE.test(title) !== CHINESE.test(text)) continue;
      const common = sum(asked.filter(word => every.has(word)));
      if (common < least || common < rules.SHARE * whole) continue;
      const inTitle = sum(asked.filter(word => head.has(word)));
      const others = [...every].filter(word => !asked.includes(word)).length;
      const raw = common + rules.TITLE * inTitle - rules.MORE * others;
      const score = Math.round(raw * 1e6) / 1e6;
      if (!scores.has(short) || score > scores.get(short)[0]) scores.set(short, [score, title]);
    }
    return [...scores]
      .sort(([one, [less]], [other, [more]]) => more - less || (one < other ? -1 : 1))
      .map(([short, [, title]]) => [title, address(short)]);
  }

  return (text, most = 3) => {
    const found = text.length > rules.QUESTION ? [] : search(text, rules.LEAST);
    if (found.length) return found.slice(0, most);
    if (text.split("\n").length - 1 > rules.SYMPTOM || !said.isStory(text)) return [];
    for (const sentence of said.sentences(text).slice(0, rules.FIRST)) {
      const found = search(sentence, rules.MUCH);
      if (found.length) return found.slice(0, most);
    }
    return [];
  };
};

// trackerOf(data)(text): [name, "owner/repository", whether it is foreign]
const trackerOf = data => {
  const {rules} = data;
  const FRAME = new RegExp(rules.FRAME), PASSES = new RegExp(rules.PASSES);
  const VERSIONS = new RegExp(rules.VERSIONS);
  const INSTALLED = new RegExp(rules.INSTALLED), CLASS = new RegExp(rules.CLASS);
  const ERROR = new RegExp(rules.ERROR), PYTHON = rules.PYTHON.split(" ");
  const whole = words => new RegExp(
    `(?<![\\w-])(?<!without )(?:${words})(?![\\w-])`, "i");
  const trackers = data.trackers.map(
    ([name, repository, packages, words, classes, foreign, sure]) => ({
      packages: packages.split(" "), foreign: foreign ?? 0,
      told: [name, repository, foreign === 1],
      words: whole(words || packages.split(" ").join("|")),
      classes: classes ? new RegExp(`^(?:${classes})$`) : null,
      sure: sure ? whole(sure) : null,
    }));
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
    const said = lines.filter(line => !FRAME.test(line)), every = said.join("\n");
    const surely = trackers.find(each => each.sure?.test(every));
    if (surely) return surely.told;
    const errors = said.filter(line => /error|exception/i.test(line));
    const rest = said.filter(line => !VERSIONS.test(line)).join("\n");
    const alone = !pytorch.words.test(every), last = !pytorch.words.test(rest);
    const parts = errors.length ? [[errors.at(-1), alone], [rest, false]] : [[rest, alone]];
    if (alone && !errors.length) parts.push([every, true]);
    for (const [part, foreign] of parts) {
      const found = trackers.find(
        each => [true, foreign, last][each.foreign] && each.words.test(part));
      if (found) return found.told;
    }
    return null;
  }

  return text => {
    const lines = text.slice(-rules.TAIL).split(/\r\n|\r|\n/);
    return ofFrames(lines) ?? ofClass(lines) ?? ofWords(lines) ?? pytorch.told;
  };
};

// What a text says in words, as phrases.py of packages/torch_messages: {lineOf(text,
// unknown), sentences(text), missing(text), isStory(text)}. rule: what phrases.json
// holds; rules: what rules.json does.
const phrasesOf = (rule, rules) => {
  const NO_FRAME = "The last line of the traceback is missing: it has the message. Paste"
    + " it, too.";
  const NO_MESSAGE = "There is no message in this text. If there was one, add it: the last"
    + " lines of the output.";
  const is = Object.fromEntries(Object.entries(rule)
    .filter(([, each]) => typeof each === "string")
    .map(([name, each]) => [name, new RegExp(each)]));
  const every = name => new RegExp(rule[name], "g");
  const COLORS = new RegExp(rules.COLORS, "g"), TAG = new RegExp(rules.TAG, "g");
  const PREFIX = new RegExp(rules.PREFIX, "gim"), LOGGED = new RegExp(rules.LOGGED);
  const HEADS = new RegExp(rules.HEADS, "i"), ENTITY = new RegExp(rules.ENTITY);
  const kinds = Object.fromEntries(
    ["error", "death", "warning"].map(kind => [kind, new RegExp(rules.KINDS[kind])]));

  const linesOf = text => text.replace(COLORS, "").split(/\r\n|\r|\n/)
    .map(line => line.replace(PREFIX, ""))
    .map(line => line.search(TAG) < 0 ? line : line.replace(TAG, "").trim());
  const begin = text => linesOf(text.slice(0, rule.TAIL));
  const end = text => linesOf(text.slice(-rule.TAIL));

  const failed = text => end(text).filter(line => {
    if (/^(?: *raise | {4}|[~^ ]+$)/.test(line) || is.FRAME.test(line)) return false;
    return [line, line.replace(LOGGED, "")].some(
      each => [kinds.error, kinds.death, is.SAID].some(sign => sign.test(each)));
  });

  function message(line) {
    const bare = line.replace(PREFIX, "").replace(LOGGED, "").trim();
    const said = bare.match(is.SAID);
    if (said) return said.index ? said[1].replace(/[ `)*]+$/, "") : said[1];
    return bare.replace(HEADS, "") || bare || line;
  }

  function cut(line) {
    line = line.replace(every("QUOTES"), "").trim();
    const letters = Array.from(line);
    if (letters.length <= rule.PHRASE) return line;
    const first = letters.slice(0, rule.PHRASE).join(""), space = first.lastIndexOf(" ");
    return first.slice(0, Math.max(space, 0)) || first;
  }

  function paragraphs(text) {
    const joined = [], lines = begin(text);
    const first = lines.findIndex(line => line.trim());
    lines.forEach((line, n) => {
      if (is.NO_PROSE.test(line) || !line.trim()) return;
      const above = n ? lines[n - 1] : "";
      const goesOn = above.length >= rule.WRAPPED && is.GOES_ON.test(line);
      if (joined.length && goesOn && !is.NO_PROSE.test(above)) {
        joined.at(-1)[0] += ` ${line}`;
        return;
      }
      const isTitle = n === first && n + 1 < lines.length && !lines[n + 1].trim();
      joined.push([line, isTitle ? rule.TITLE : rule.LEAST]);
    });
    return joined;
  }

  const count = (text, name) => (text.match(every(name)) ?? []).length;
  const sentences = text => paragraphs(text).flatMap(([line, least]) =>
    line.replace(every("MARKS"), "").split(is.STOPS)
      .map(sentence => sentence.trim().replace(is.GREETING, "").trim())
      .filter(said => count(said, "WORDS") >= least
        && (count(said, "PLAIN") > 1 || least < rule.LEAST)));

  function lineOf(text, unknown = "") {
    const line = unknown || (failed(text).at(-1) ?? "");
    if (line) return cut(message(line));
    const said = sentences(text);
    const filled = begin(text).map(line => line.trim()).filter(Boolean);
    const rest = filled.filter(line => !is.NO_PROSE.test(line));
    const telling = said.filter(each => is.TELLING.test(each));
    return cut([...telling, ...said, ...rest, ...filled, text.trim()][0]);
  }

  const hasFrames = text => end(text).some(line => is.FRAME.test(line));
  const isStory = text => !failed(text).length && !hasFrames(text);
  const mayBeMessage = line => kinds.warning.test(line)
    || (is.MESSAGE.test(line.toLowerCase()) && !is.OWN.test(line));
  function missing(text) {
    if (failed(text).length || ENTITY.test(text) || is.NO_ERROR.test(text)) return "";
    if (hasFrames(text)) return NO_FRAME;
    const filled = begin(text).filter(line => line.trim());
    if (filled.length < 2 && sentences(text).length < 2) return "";
    return end(text).some(mayBeMessage) ? "" : NO_MESSAGE;
  }

  return {lineOf, sentences, missing, isStory};
};
