// The search: search.js loads it. Pagefind finds sections by one word each; here the
// words of a query are put together, and the best are put in order by their titles.
"use strict";

window.pageSearch = (() => {
  const MOST = 4;  // ways to look for words: each may load a part of the index, some 26 kB
  const LOOKED_AT = 24;  // sections whose titles are compared
  const SECTIONS = 1700;  // of the site, about
  const HALF = 1.5;  // so many times its rarity, and a word counts half of what it can
  const AGAIN = 0.6;  // what each further one of a kind counts, so that others are seen
  const SHOWN = 8;
  const WAIT = 200;  // ms after the last key
  // other words for the same, as pages call it
  const SAME = { stuck: "hang", freeze: "hang", freezes: "hang", frozen: "hang",
    deadlock: "hang", oom: "memory", vram: "memory", bf16: "bfloat16", fp16: "float16" };
  // what most readers look for, before what they may read on
  const KINDS = {
    answer: ["Quick answer", 1.8],
    task: ["How do I …?", 1.4],
    message: ["Error or warning", 1.2],
    term: ["Glossary", 1.2],
    lesson: ["Lesson", 1.5],
    zh: ["中文", 1.2],
    page: ["", 1],
    recipe: ["Recipe", 0.8],
    aside: ["", 0.8],
  };

  // ------------------------------------------------------------------------------------
  // Words

  const joined = (text) => text.replace(/[^\p{L}\p{N}_]/gu, "");
  // first those that do not overlap: they are words more often
  const pairs = (run) => {
    if (run.length < 2) return [run];
    const all = [...run.slice(1)].map((_, n) => run.slice(n, n + 2));
    return [...all.filter((_, n) => n % 2 === 0), ...all.filter((_, n) => n % 2)];
  };

  // The words of a query, each as the ways in which it is looked for: a dotted name also
  // by its last part, Chinese by two characters.
  const wordsOf = (query) => {
    const found = [];
    query = query.replace(/为什么|有什么用|有什么|怎么办|怎么|怎样|什么|如何|[的了吗呢]/gu, " ");
    for (const run of query.toLowerCase().match(/\p{Script=Han}+|[^\s\p{Script=Han}]+/gu) ?? []) {
      if (/\p{Script=Han}/u.test(run)) {
        found.push(...pairs(run).map((pair) => [pair]));
        continue;
      }
      const name = run.replace(/\(.*/, "").replace(/^[^\p{L}\p{N}_]+|[^\p{L}\p{N}_]+$/gu, "");
      const ways = [joined(name), joined(name.split(".").pop()), SAME[name]].filter((way) => way);
      if (ways.length) found.push([...new Set(ways)]);
    }
    const telling = found.filter(([word]) => !stop.includes(word));
    const all = telling.length ? telling : found;
    const unlike = [...new Map(all.map((ways) => [ways[0], ways])).values()];
    const chosen = new Set();
    let count = 0;
    // of many, long ones tell most, but the class of a message tells little
    const tells = ([word]) => /(?:error|warning|exception)$/.test(word) ? 0 : word.length;
    for (const ways of [...unlike].sort((a, b) => tells(b) - tells(a))) {
      if ((count += ways.length) <= MOST || !chosen.size) chosen.add(ways);
    }
    return unlike.filter((ways) => chosen.has(ways));
  };

  // Whether one can be typed for the other: a letter more, less, changed, or two swapped.
  const alike = (a, b) => {
    if (Math.abs(a.length - b.length) > 1) return false;
    let at = 0;
    while (at < a.length && a[at] === b[at]) at++;
    const rest = (text, skip) => text.slice(at + skip);
    return rest(a, 1) === rest(b, 1) || rest(a, 1) === rest(b, 0) || rest(a, 0) === rest(b, 1)
      || (a[at] === b[at + 1] && a[at + 1] === b[at] && rest(a, 2) === rest(b, 2));
  };

  // A word of titles for one that is none: [what was typed, what was looked for].
  const mend = (words, known) => words.flatMap((ways) => {
    const word = ways[0];
    if (word.length < 5 || !/^[a-z]+$/.test(word)) return [];
    if (known.some((each) => each.startsWith(word) || word.startsWith(each))) return [];
    const other = known.find((each) => alike(word, each));
    if (!other) return [];
    ways.push(other);
    return [[word, other]];
  });

  const stem = (word) => word.replace(/(?:ing|ed|es|s|e)$/, (end, at) => at > 2 ? "" : end);

  // ------------------------------------------------------------------------------------
  // Results

  let index, known, stop;  // stop: words that tell nothing beside others
  const begin = (root) => index ??= (async () => {
    const base = new URL("pagefind/", root);
    const [pagefind, words] = await Promise.all([
      import(new URL("pagefind.js", base)),
      fetch(new URL("words.txt", base)).then((reply) => reply.text()),
    ]);
    [stop, known] = words.split("\n").map((line) => line.split(" "));
    await pagefind.options({
      noWorker: true,  // it would be loaded besides
      ranking: { pageLength: 0.2, termSaturation: 1.2,
                 metaWeights: { title: 2, where: 0.5 } },
    });
    await pagefind.init();
    return pagefind;
  })();

  // What a section says and where it stands, beside what it is found by.
  const read = async (result) => {
    const { content, meta, filters } = await result.data();
    const [url, kind] = [filters.link[0], filters.kind[0]];
    const [text, words] = [filters.text?.[0] ?? "", filters.words?.[0] ?? ""];
    const all = joined(`${meta.title} ${meta.where} ${text} ${content}`.toLowerCase());
    return { ...meta, url, kind, text, words, all };
  };

  // How much better a section fits than its words tell: by its kind and its title.
  const fit = (section, words, query) => {
    const title = section.title.toLowerCase();
    const has = (text, ways) => ways.some((way) => text.includes(stem(way)));
    const inTitle = title.split(/[\s·]+/).map(joined)
      .filter((word) => word && !stop.includes(word) && !/^\d+$/.test(word));
    const together = joined(title);
    // of a task also its other words, which people chose
    const told = section.kind === "task" ? together + joined(section.words.toLowerCase()) : together;
    const share = words.filter((ways) => has(told, ways)).length / words.length;
    const meant = inTitle.filter((word) => words.some((ways) => has(word, ways))).length;
    const density = inTitle.length ? meant / inTitle.length : 0;
    const asked = joined(query.toLowerCase());
    const whole = together.includes(asked) || (inTitle.length > 2 && asked.includes(together));
    const chinese = section.kind === "zh" && !/\p{Script=Han}/u.test(query);
    return KINDS[section.kind][1] * (whole ? 1.4 : 1) * (chinese ? 0.5 : 1)
      * (1 + share ** 2 * (0.4 + density));
  };

  // In order, the best first.
  const varied = (sections) => {
    const left = new Set(sections), found = [], factor = {};
    while (left.size) {
      const worth = (section) => section.score * (factor[section.kind] ?? 1);
      const next = [...left].reduce((best, each) => worth(each) > worth(best) ? each : best);
      left.delete(next);
      found.push(next);
      factor[next.kind] = (factor[next.kind] ?? 1) * AGAIN;
    }
    return found;
  };

  // Pagefind takes the beginning of a word that it does not know: "x" for "xqz".
  const begun = (way) => way.slice(0, Math.max(3, way.length - 4));
  const hasOne = (section, words) =>
    words.some((ways) => ways.some((way) => section.all.includes(begun(way))));

  const find = async (root, query) => {
    const pagefind = await begin(root);
    const words = wordsOf(query), mended = mend(words, known), scores = new Map();
    await Promise.all(words.map(async (ways, n) => {
      const best = new Map();
      const lists = await Promise.all(ways.map((way) => pagefind.search(way)));
      for (const result of lists.flatMap((list) => list.results)) {
        if (result.score > (best.get(result.id)?.score ?? 0)) best.set(result.id, result);
      }
      const rare = Math.log(1 + SECTIONS / (1 + best.size));
      for (const [id, result] of best) {
        const had = scores.get(id) ?? { result, sum: 0, count: 0 };
        had.sum += rare * result.score / (result.score + HALF * rare);
        had.count++;
        scores.set(id, had);
      }
    }));
    for (const each of scores.values()) each.score = each.sum * (each.count / words.length) ** 1.5;
    const ordered = [...scores.values()].sort((a, b) => b.score - a.score);
    const sections = await Promise.all(ordered.slice(0, LOOKED_AT).map(async (each) => {
      const section = await read(each.result);
      return { ...section, score: each.score * fit(section, words, query) };
    }));
    const fitting = sections.filter((section) => hasOne(section, words));
    return { sections: varied(fitting), words, mended };
  };

  // ------------------------------------------------------------------------------------
  // On the page

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // A text with the words that were looked for as <mark>; a long one around the first
  // place that has most of them.
  const excerpt = (text, words, length = 180) => {
    const stems = words.flat().map(stem).filter((word) => word.length > 1 || /\P{ASCII}/u.test(word));
    const parts = text.split(/(\s+|(?<=\p{Script=Han}))/u).filter((part) => part);
    const hits = parts.map((part) => stems.some((word) => joined(part.toLowerCase()).startsWith(word)));
    const hanHits = /\p{Script=Han}/u.test(text) && stems.some((word) => text.includes(word));
    let from = 0;
    if (text.length > length) {
      let at = 0, most = -1;
      const starts = parts.map((part) => (at += part.length) - part.length);
      for (const [n, hit] of hits.entries()) {
        if (!hit) continue;
        const count = hits.filter((other, m) => other && starts[m] >= starts[n]
          && starts[m] < starts[n] + length * 0.7).length;
        if (count > most) [most, from] = [count, Math.max(0, starts[n] - 40)];
      }
      if (most < 0 && hanHits) {
        from = Math.max(0, text.indexOf(stems.find((word) => text.includes(word))) - 20);
      }
    }
    let shown = text.slice(from, from + length);
    if (from) shown = `… ${shown.replace(/^\S*\s/, "")}`;
    if (from + length < text.length) shown = `${shown.replace(/\s\S*$/, "")} …`;
    if (!stems.length) return [shown];
    const escaped = stems.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const found = new RegExp(`(?<![\\p{Script=Latin}\\p{N}])((?:${escaped.join("|")})[a-z]{0,3})(?![a-z])`
      + `|((?:${escaped.filter((word) => /\P{ASCII}/u.test(word)).join("|") || "(?!)"})+)`, "giu");
    const pieces = [];
    let done = 0;
    for (const match of shown.matchAll(found)) {
      pieces.push(shown.slice(done, match.index), element("mark", { textContent: match[0] }));
      done = match.index + match[0].length;
    }
    return [...pieces, shown.slice(done)];
  };

  const row = (section, words, root) => {
    const label = ["lesson", "aside", "page"].includes(section.kind) ? section.where
      : [KINDS[section.kind][0], section.kind === "task" && section.where].filter((each) => each).join(" · ");
    const link = element("a", { href: root + section.url },
      element("span", { className: "search-title" }, ...excerpt(section.title, words, 200)));
    if (label) link.append(element("span", { className: "search-where", textContent: label }));
    const text = excerpt(section.text, words);
    if (section.text) link.append(element("span", { className: "search-text" }, ...text));
    return element("li", {}, link);
  };

  const said = (found, query) => {
    const count = found.sections.length;
    const other = found.mended.map(([, word]) => `“${word}”`).join(" and ");
    const also = other ? ` Also looked for ${other}.` : "";
    if (!count) return `Nothing found for “${query}”.${also}`;
    const number = count < LOOKED_AT ? `${count} ${count === 1 ? "place" : "places"}` : "The best places";
    return `${number} for “${query}”.${also}`;
  };

  const AS_FILE = "A page that is opened as a file may not read the index of the search. In the"
    + " folder of the site run “python -m http.server”, and open http://localhost:8000.";

  // The field and what it finds, in `place`.
  const interface_ = (root, place) => {
    const input = element("input", { type: "search", name: "q", autocomplete: "off",
      spellcheck: false, placeholder: "A name, a message, a question, 中文" });
    input.setAttribute("aria-label", "Search");
    const status = element("p", { className: "search-status" });
    status.setAttribute("role", "status");
    const list = element("ol", { className: "search-found" });
    const more = element("button", { type: "button", hidden: true, textContent: "More" });
    const help = element("p", { className: "look-up", hidden: true });
    const form = element("form", {}, input);
    form.setAttribute("role", "search");
    place.append(form, status, help, list, more);

    let asked = "", waiting;
    const show = async (query) => {
      query = query.trim();
      if (query === asked) return;
      asked = query;
      delete list.dataset.query;
      const message = query.length > 50 || /(?:Error|Warning|Exception)\b/.test(query);
      help.hidden = !message;
      if (message) {
        const href = `${root}docs/errors.html?message=${encodeURIComponent(query)}`;
        help.replaceChildren("This looks like a message: ",
          element("a", { href, textContent: "Errors and warnings" }), " may have the answer.");
      }
      list.replaceChildren();
      more.hidden = true;
      status.textContent = query ? "Searching …" : "";
      if (!query) return;
      try {
        if (location.protocol === "file:") throw Error(AS_FILE);
        const found = await find(root, query);
        if (query !== asked) return;
        const rows = found.sections.map((section) => row(section, found.words, root));
        list.replaceChildren(...rows.splice(0, SHOWN));
        list.dataset.query = query;
        more.hidden = !rows.length;
        more.onclick = () => {
          more.hidden = true;
          list.append(...rows);
          rows[0].firstChild.focus();
        };
        status.textContent = said(found, query);
      } catch (error) {
        asked = "";
        status.textContent = location.protocol === "file:" ? AS_FILE
          : "The search could not be loaded. Try again.";
      }
    };
    input.addEventListener("input", (event) => {
      if (event.isComposing) return;
      clearTimeout(waiting);
      waiting = setTimeout(() => show(input.value), WAIT);
    });
    input.addEventListener("compositionend", () => show(input.value));
    form.addEventListener("submit", async (event) => {  // Enter
      event.preventDefault();
      clearTimeout(waiting);
      await show(input.value);
      list.querySelector("a")?.focus();
    });
    place.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const stops = [input, ...list.querySelectorAll("a")];
      const next = stops[stops.indexOf(document.activeElement) + step];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
    return { input, show };
  };

  let dialog, within;
  // Open the search above the page, with what was typed so far.
  const open = (root, text) => {
    if (!dialog) {
      dialog = element("dialog", { className: "search" });
      dialog.setAttribute("aria-label", "Search");
      const close = element("button", { type: "button", className: "search-close", textContent: "Close" });
      close.addEventListener("click", () => dialog.close());
      dialog.addEventListener("click", (event) => {
        // beside it; or on a link, which may lead to this very page
        if (event.target === dialog || event.target.closest("a")) dialog.close();
      });
      dialog.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || event.isComposing) return;
        event.preventDefault();  // else the browser empties the field first
        dialog.close();
      });
      document.body.append(dialog);
      const inside = element("div", { className: "search-inside" });
      dialog.append(inside);
      within = interface_(root, inside);
      within.input.form.append(close);
    }
    if (!dialog.open) dialog.showModal();
    if (text) within.input.value = text;
    within.input.focus();
    within.input.select();
    if (text) {
      within.input.setSelectionRange(text.length, text.length);
      within.input.dispatchEvent(new Event("input"));
    }
  };

  // The page search.html: its address may hold a query.
  const show = (root, place) => {
    const { input, show } = interface_(root, place);
    input.value = new URLSearchParams(location.search).get("q") ?? "";
    input.focus();
    show(input.value);
  };

  return { open, show, find };
})();
