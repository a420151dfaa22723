// The search page: what lookup.js knows of messages, names and Chinese words comes first
// (tools/site/lookup.py, terms.py).
"use strict";

{
  const plain = text => text.toLowerCase().replace(/[^\p{L}_]+/gu, " ").trim();

  // [page, its name, anchor, section] as one of Sphinx's results.
  const result = ([page, name, anchor, section], score) =>
    [page, name, `#${anchor}`, section.replace(/[&<]/g, letter => `&#${letter.charCodeAt(0)};`),
     score, `${page}.html`, "title"];

  // Where a message is mended, and its entry, for at least three words of it.
  function messages(query) {
    const words = plain(query);
    if (query.trim().split(/\s+/).length < 3) return [];
    return deviceLab.lookup.messages
      .filter(([text, title]) => plain(text).includes(words) || words.includes(plain(title)))
      .sort(([, left], [, right]) => plain(right).length - plain(left).length)
      .slice(0, 4)
      .flatMap(([, , lesson, entry], n) => [result(lesson, 900 - n), result(entry, 800 - n)]);
  }

  // Where lessons say most about a name: torch.amp.GradScaler, record_stream().
  function names(query) {
    const name = query.trim().toLowerCase().replace(/\(.*$/, "").split(".").pop();
    const places = Object.hasOwn(deviceLab.lookup.names, name)
      ? deviceLab.lookup.names[name] : [];
    return places.map((place, n) => result(place, 700 - n));
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
    const first = new Map([...messages(query), ...names(query), ...chinese(query)]
      .sort((left, right) => right[4] - left[4])
      .map(each => [each[0] + each[2], each])
      .reverse());
    const others = search(query, ...terms)
      .filter(([page, , anchor]) => !first.has(page + anchor));
    return [...others, ...first.values()];
  };
}
