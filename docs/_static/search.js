// The search page: what lookup.js knows of messages and names comes first
// (tools/site/lookup.py).
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

  const search = Search._performSearch;
  // Sphinx shows the last of its results first
  Search._performSearch = (query, ...terms) => {
    const first = new Map([...messages(query), ...names(query)]
      .sort((left, right) => right[4] - left[4])
      .map(each => [each[0] + each[2], each])
      .reverse());
    const others = search(query, ...terms)
      .filter(([page, , anchor]) => !first.has(page + anchor));
    return [...others, ...first.values()];
  };
}
