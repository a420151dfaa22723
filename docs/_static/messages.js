// The field on the page of errors: entries that fit a pasted message, the best first
// (tools/site/messages.py).
"use strict";

{
  const field = document.getElementById("message");
  const list = document.getElementById("messages-found");
  const known = JSON.parse(document.getElementById("messages").textContent);
  const plain = text => text.toLowerCase().replace(/[^\p{L}_]+/gu, " ").trim();
  const split = text => new Set(plain(text).split(" "));

  // What words say: one says the more, the fewer entries have it.
  const counts = new Map();
  for (const [, , title] of known)
    for (const word of split(title)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const weight = words => words.reduce((total, word) =>
    total + Math.log((1 + known.length) / (1 + (counts.get(word) ?? 0))), 0);

  // 4 where the first words of the one hold the other's, 3 for a wording of this one alone,
  // 2 for one that others have, too, 1 where all of its words hold the message, else the
  // share of its first words that the message has.
  function fit(asked, [, , title, words, alone, shared]) {
    const query = plain(asked), own = plain(title);
    if (own && (own.includes(query) || query.includes(own))) return 4;
    if (alone.some(wording => new RegExp(wording).test(asked))) return 3;
    if (shared.some(wording => new RegExp(wording).test(asked))) return 2;
    if (plain(words).includes(query)) return 1;
    const all = split(asked), parts = [...split(title)];
    const common = parts.filter(word => all.has(word));
    return common.length < 3 ? 0 : weight(common) / weight(parts);
  }

  function show() {
    const asked = field.value.trim();
    const far = ([, , title]) => Math.abs(plain(title).length - plain(asked).length);
    const found = asked.length < 4 ? [] : known
      .map(entry => [fit(asked, entry), entry])
      .filter(([fits]) => fits > 0.6)
      .sort(([left, one], [right, other]) => right - left || far(one) - far(other))
      .slice(0, 4);
    list.replaceChildren(...found.map(([, [label, address]]) => {
      const item = document.createElement("li");
      const shown = document.createElement(address ? "a" : "span");
      if (address) shown.href = address;
      shown.textContent = label;
      item.append(shown);
      return item;
    }));
    if (asked.length >= 4 && !found.length) {
      const none = document.createElement("li");
      none.textContent = "None of these. Lesson 16 looks further: paste it there.";
      list.append(none);
    }
  }
  field.addEventListener("input", show);
  show();  // a browser keeps what was typed
}
