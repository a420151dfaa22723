// The search page: what lookup.js knows of messages, names and Chinese words comes first
// (tools/site/lookup.py, terms.py).
"use strict";

{
  const plain = text => text.toLowerCase().replace(/[^\p{L}_]+/gu, " ").trim();

  // [page, its name, anchor, section] as one of Sphinx's results.
  const result = ([page, name, anchor, section], score) =>
    [page, name, `#${anchor}`, section.replace(/[&<]/g, letter => `&#${letter.charCodeAt(0)};`),
     score, `${page}.html`, "title"];

  // A message's entry, and where it is mended, for at least three words of it.
  function messages(query) {
    const words = plain(query);
    if (query.trim().split(/\s+/).length < 3) return [];
    // its own words, not those of its cause
    const like = title => plain(title).includes(words) || words.includes(plain(title));
    return deviceLab.lookup.messages
      .filter(([text, title]) => plain(text).includes(words) || words.includes(plain(title)))
      .sort(([, left], [, right]) =>
        like(right) - like(left) || plain(right).length - plain(left).length)
      .slice(0, 4)
      .flatMap(([, , entry, lesson], n) =>
        [result(entry, 900 - 2 * n), result(lesson, 899 - 2 * n)]);
  }

  // A name in the index, and the section that explains it: torch.amp.GradScaler,
  // xm.mark_step(), non_blocking=True.
  function names(query) {
    const name = query.trim().replace(/[(=].*$/, "");
    const [first, ...others] = name.split(".");
    const { aliases } = deviceLab.lookup;
    const whole = [Object.hasOwn(aliases, first) ? aliases[first] : first, ...others].join(".");
    const ends = (text, end) => `.${text}`.endsWith(`.${end}`);
    const called = text => text.replace(/\((\w+)=\)$/, ".$1");
    const lower = whole.toLowerCase();
    const found = deviceLab.lookup.api.filter(([text]) => ends(called(text).toLowerCase(), lower));
    // as it is written, before what differs in capitals
    found.sort(([left], [right]) => ends(called(right), whole) - ends(called(left), whole));
    return found.slice(0, 4).flatMap(([text, anchor, place], n) =>
      [result(["docs/names", "Index of names", anchor, text], 700 - 2 * n),
       result(place, 699 - 2 * n)]);
  }

  // Where lessons say most about another word of code, such as torchrun.
  function words(query) {
    const word = query.trim().toLowerCase().replace(/\(.*$/, "").split(".").pop();
    const places = Object.hasOwn(deviceLab.lookup.names, word)
      ? deviceLab.lookup.names[word] : [];
    return places.map((place, n) => result(place, 600 - n));
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

  const search = Search._performSearch;
  // Sphinx shows the last of its results first
  Search._performSearch = (query, ...terms) => {
    const found = [messages, names, words, chinese].flatMap(find => find(query));
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
