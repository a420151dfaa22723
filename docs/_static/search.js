// The search page: what lookup.js knows of messages, names, Chinese words and tasks comes
// first (tools/site/lookup.py, terms.py).
"use strict";

{
  const plain = text => text.toLowerCase().replace(/[^\p{L}_]+/gu, " ").trim();

  // [page, its name, anchor, section] as one of Sphinx's results, with an answer in HTML.
  const html = text => text.replace(/[&<]/g, letter => `&#${letter.charCodeAt(0)};`)
    .replace(/`([^`]+)`/g, "<code>$1</code>");
  const result = ([page, name, anchor, section], score, answer) =>
    [page, name, `#${anchor}`,
     [html(section).replace(/:$/, ""), answer].filter(text => text).join(": "),
     score, `${page}.html`, "title"];

  // A function that adds up how much words say, among these sets of words: one says the
  // more, the fewer sets have it.
  function rarity(sets) {
    const counts = new Map();
    for (const set of sets)
      for (const word of set) counts.set(word, (counts.get(word) ?? 0) + 1);
    return words => words.reduce((total, word) =>
      total + Math.log((1 + sets.length) / (1 + (counts.get(word) ?? 0))), 0);
  }
  const split = text => new Set(plain(text).split(" "));

  // How well a query fits a message: 4 where the one's own words hold the other's, 3 for a
  // wording that is of this one alone, 2 for another that is known, 1 where its cause or its
  // details hold the query, else the share of its words that the query has, by their rarity.
  let titles;
  function fit(query, [text, title, , , wordings, , alone]) {
    const asked = plain(query), own = plain(title);
    if (own && (own.includes(asked) || asked.includes(own))) return 4;
    if (alone.some(wording => new RegExp(wording).test(query))) return 3;
    if (wordings.some(wording => new RegExp(wording).test(query))) return 2;
    if (plain(text).includes(asked)) return 1;
    titles ??= rarity(deviceLab.lookup.messages.map(([, title]) => split(title)));
    const all = split(query), words = [...split(title)];
    const common = words.filter(word => all.has(word));
    return common.length < 3 ? 0 : titles(common) / titles(words);
  }

  // A message's entry, and where it is mended, for at least three words of it; for less, such
  // as recompile_limit, where lesson 16 says that it is explained.
  function messages(query) {
    const short = query.trim().split(/\s+/).length < 3, score = short ? 560 : 900;
    const far = title => Math.abs(plain(title).length - plain(query).length);
    return deviceLab.lookup.messages
      .filter(([, title]) => !short || !title)
      .map(message => [fit(query, message), message])
      .filter(([fits]) => fits > (short ? 1 : 0.6))
      .sort(([left, [, one]], [right, [, other]]) => right - left || far(one) - far(other))
      .slice(0, 4)
      .flatMap(([, [, , entry, lesson, , answer]], n) =>
        [...(entry ? [result(entry, score - 2 * n, answer)] : []),
         result(lesson, score - 1 - 2 * n, entry ? "" : answer)]);
  }

  // A name in the index, the section that explains it, and rows of lesson 16:
  // torch.amp.GradScaler, xm.mark_step(), non_blocking=True, torch.compile(mode="default"),
  // torch.load map_location, with torch.cuda.stream(s):, x.cuda(), Tensor.cpu vs Tensor.to.
  function names(query) {
    return query.trim().replace(/^(?:with |\.)/, "").split(/ (?:vs\.?|versus|or) /).flatMap(named)
      .map(([place, answer], n) => result(place, 700 - n, answer));
  }
  function named(query) {
    const [, name, space, rest] = query.match(/^([^(=\s]*)(?:([(\s])([^)]*))?/);
    const parts = (rest ?? "").match(/^\w+$|\w+(?==)|\w*_\w+/g) ?? [];
    const [first, ...others] = name.split(".");
    const { aliases } = deviceLab.lookup;
    const whole = [Object.hasOwn(aliases, first) ? aliases[first] : first, ...others].join(".");
    const ends = (text, end) => `.${text}`.endsWith(`.${end}`);
    const called = text => text.replace(/\((\w+)=\)$/, ".$1");
    // as it is written, before what differs in capitals
    const like = wanted => deviceLab.lookup.api
      .filter(([text]) => ends(called(text).toLowerCase(), wanted.toLowerCase()))
      .sort(([left], [right]) => ends(called(right), wanted) - ends(called(left), wanted));
    const narrow = parts.flatMap(part => like(`${whole}.${part}`));
    // "DataLoader hangs" asks for more than the name
    const alone = space !== " " || narrow.length || /[._]/.test(name) && !/ /.test(rest);
    const found = [...narrow, ...(alone ? like(whole) : [])];
    if (!found.length && alone && others.length === 1) found.push(...like(others[0]));
    return found.slice(0, 4)
      .flatMap(([text, anchor, places, answer]) =>
        [[["docs/names", "Index of names", anchor, text], answer],
         ...places.map(place => [place])]);
  }

  // Where lessons say most about another word of code, such as torchrun.
  function words(query) {
    const word = query.trim().toLowerCase().replace(/\(.*$/, "").split(".").pop();
    const places = Object.hasOwn(deviceLab.lookup.names, word)
      ? deviceLab.lookup.names[word] : [];
    return places.map((place, n) => result(place, 600 - n));
  }

  // The recipe, quick answer or section that does what is asked for, such as "measure GPU
  // time": the one that has most of the words, the rare ones before the usual.
  let known, sum;
  const ASKING = ("can correctly do does find from how my out should what when which why"
    + " you").split(" ");
  function tasks(query) {
    const stemmer = new Stemmer();
    const stems = text => new Set((text.toLowerCase().match(/\p{L}{2,}/gu) ?? [])
      .filter(word => !stopwords.includes(word) && !ASKING.includes(word))
      .map(word => stemmer.stemWord(word)));
    const asked = [...stems(query)];
    if (asked.length < 2) return [];
    const whole = query.trim().toLowerCase();
    known ??= deviceLab.lookup.tasks.map(([title, text, place]) =>
      [stems(title), stems(`${title} ${text}`), place, title]);
    sum ??= rarity(known.map(([, words]) => words));
    const within = words => sum(asked.filter(word => words.has(word)));
    return known
      .filter(([, words]) => asked.filter(word => words.has(word)).length > 1)
      .map(([title, words, place, text]) => {
        // tasks, recipes and quick answers are more to the point than sections
        const short = /^(docs|.*,How do I)/.test(place) ? 1.2 : 1;
        // its very words: CUDA_VISIBLE_DEVICES
        const said = whole.length > 5 && text.toLowerCase().includes(whole);
        const all = within(words) / sum(asked);
        return [said + short * (1 + all) / 2 * (2 * within(title) / sum(asked) + all) / 3, place];
      })
      .filter(([fits]) => fits >= 0.2)
      .sort(([left], [right]) => right - left)
      .slice(0, 3)
      .map(([fits, place], n) => result(place, (fits > 1.3 ? 640 : 500) - n));
  }

  // Where a term or topic is explained whose Chinese name is asked for, 显存不足, or
  // stands in the question: 显存不足怎么办.
  function chinese(query) {
    const close = text => text.toLowerCase().replace(/\s+/g, "");
    const asked = close(query);
    if (!/\p{Script=Han}/u.test(asked)) return [];
    // the share that two texts have in common; 1: they are the same
    const share = (one, other) =>
      one.includes(other) ? other.length / one.length
        : other.includes(one) ? one.length / other.length : 0;
    return deviceLab.terms
      .map(([words, ...place]) =>
        [Math.max(...words.split("、").map(word => share(close(word), asked))), place])
      .filter(([fits]) => fits > 0)
      .sort(([left], [right]) => right - left)
      .slice(0, 6)
      .map(([, [title, page, name, anchor, section]], n) =>
        result([page, name, anchor, section ? `${title}: ${section}` : title], 600 - n));
  }

  // what Sphinx shows of a page begins below its set-up cell
  const shown = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const other of page.querySelectorAll(".launch, #setup + details, button"))
      other.remove();
    return shown(page.documentElement.outerHTML, anchor);
  };

  const search = Search._performSearch;
  // Sphinx shows the last of its results first
  Search._performSearch = (query, ...terms) => {
    const found = [messages, names, words, chinese, tasks].flatMap(find => find(query));
    const first = new Map();
    for (const each of found.sort((left, right) => left[4] - right[4])) {
      const key = each[0] + each[2];
      first.delete(key);  // found twice: it stands where the better one does
      first.set(key, each);
    }
    const others = search(query, ...terms)
      .filter(([page, , anchor]) => !first.has(page + anchor));
    return [...others, ...first.values()];
  };
}
