// Finds the entries of the table that fit a pasted text: lookup(rules)(entries)(text), a
// function of these and nothing else. As messages.py and match.py of
// packages/torch_messages, which say why, and with the same numbers and expressions, its
// rules.json. A test holds that both give the same answers. Listings are for lesson 16,
// which can read Python.
"use strict";

const lookup = rules => {
  const {GAP, MOST, LIKE, MORE, LEAST, ASKED, MOST_OF, MUCH, PART, LONG, CLOSE} = rules;
  const COLORS = new RegExp(rules.COLORS, "g"), SPACE = new RegExp(rules.SPACE, "g");
  const PREFIX = new RegExp(rules.PREFIX, "gim"), FRAME = new RegExp(rules.FRAME, "gm");
  const BEFORE = new RegExp(rules.BEFORE, "g"), HEADS = new RegExp(rules.HEADS);
  const WORD = new RegExp(rules.WORD, "g"), ENDING = new RegExp(rules.ENDING);
  const NAME = new RegExp(`^(?:${rules.NAME})$`), ASKING = new Set(rules.ASKING.split(" "));
  const QUOTES = Object.entries(rules.QUOTES)
    .map(([quote, marks]) => [quote, new RegExp(`[${marks}]`, "g")]);
  const escape = text => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
  const distinct = list => [...new Set(list)];
  const sum = list => list.reduce((total, value) => total + value, 0);

  function plain(text) {
    text = text.replace(COLORS, "").replace(PREFIX, "");
    for (const [quote, marks] of QUOTES) text = text.replace(marks, quote);
    return text.replace(SPACE, " ").trim().toLowerCase();
  }

  const words = text => (plain(text).match(WORD) ?? [])
    .map(word => word.replace(ENDING, ""))
    .filter(word => !ASKING.has(word));

  function pattern(wording) {
    const whole = plain(wording);
    const pieces = whole.split("…").map(piece => escape(piece.trim()));
    const begin = /^[a-z0-9_]/.test(whole) ? "(?<![a-z0-9_])" : "";
    const end = /[0-9]$/.test(whole) ? "(?![0-9])" : "";
    return new RegExp(`${begin}${pieces.join(`.{0,${GAP}}?`)}${end}`);
  }

  return known => {
    const counts = new Map(), total = known.length + 1;
    const wordings = [];
    for (const {id, says, asked} of known) {
      for (const word of distinct([...says, ...asked].flatMap(words)))
        counts.set(word, (counts.get(word) ?? 0) + 1);
      for (const each of says) wordings.push([id, each, pattern(each)]);
    }
    const weight = (some, unknown = 1) => sum(distinct(some).sort().map(word =>
      counts.has(word) ? Math.log(total / (1 + counts.get(word))) : Math.log(total) * unknown));
    const covers = new Set(known.filter(entry => entry.cover).map(({id}) => id));

    function named(name) {
      const whole = name.toLowerCase().replace(/^-+|-+$/g, ""), one = NAME.test(name);
      const asked = one ? whole.replace(/[(=].*/, "") : whole;
      const ends = (name, short) => name.endsWith("." + short);
      const exact = [], lasting = [], told = [];
      const inside = new RegExp(`(?<![a-z0-9_])${escape(asked)}(?![a-z0-9_])`);
      for (const {id, says, names} of known) {
        const own = [id, ...names].map(each => each.toLowerCase().replace(/^-+|-+$/g, ""));
        if (own.includes(asked) || own.includes(whole)) exact.push(id);
        else if (!one) continue;
        else if (own.some(each => ends(asked, each) || ends(each, asked))) lasting.push(id);
        else if (says.some(wording => inside.test(plain(wording)))) told.push(id);
      }
      const found = exact.length ? exact : lasting.length ? lasting
        : told.length === 1 ? told : [];
      return found.slice(0, MOST);
    }

    function wordForWord(text) {
      const spans = new Map();
      for (const [id, wording, expression] of wordings) {
        const found = expression.exec(text);
        if (!found) continue;
        const span = [weight(words(wording)), found.index, found.index + found[0].length];
        const old = spans.get(id);
        if (!old || less(old, span)) spans.set(id, span);
      }
      const within = ([told, start, end], [more, first, last]) =>
        first <= start && end <= last && more > told;
      const kept = [...spans.keys()].filter(
        id => ![...spans].some(([other, span]) => other !== id && within(spans.get(id), span)));
      const uncovered = kept.filter(id => !covers.has(id));
      const causes = uncovered.length ? uncovered : kept;
      if (!causes.length) return [[], []];
      const ranks = new Map(causes.map(id => [id, rank(text, spans.get(id))]));
      if (covers.has(causes[0])) causes.sort((a, b) => spans.get(a)[1] - spans.get(b)[1]);
      else causes.sort((one, other) => less(ranks.get(one), ranks.get(other)) ? 1
        : less(ranks.get(other), ranks.get(one)) ? -1 : 0);
      const [, start, end] = spans.get(causes[0]);
      const same = causes.filter(id => spans.get(id)[1] === start && spans.get(id)[2] === end);
      return [same, causes.filter(id => !same.includes(id))];
    }

    function rank(text, [told, start, end]) {
      const cut = text.lastIndexOf(rules.ORIGINAL);
      const joints = [...text.matchAll(BEFORE)].map(found => found.index);
      const caused = cut >= 0 ? start > cut : joints.length > 0 && start < joints.at(-1);
      const warned = text.slice(Math.max(0, start - 80), end).includes("warning");
      return [Number(caused), Number(!warned), start, told];
    }

    function part(text) {
      const piece = plain(text).replace(HEADS, "")
        .replace(/^[ .:;!\-()[\]<>]+|[ .:;!\-()[\]<>]+$/g, "");
      const told = weight(words(piece));
      if (piece.includes("\n") || told < LEAST) return [];
      const inside = new RegExp(`(?<![a-z0-9_])${escape(piece)}(?![a-z0-9_])`);
      const holds = wording => inside.test(plain(wording));
      const found = known.filter(({says}) => says.some(holds));
      const share = Math.max(0, ...found.flatMap(({says}) => says.filter(holds))
        .map(wording => told / weight(words(wording))));
      return found.length <= 2 && share > PART ? found.map(({id}) => id) : [];
    }

    function like(text) {
      const asked = words(text.includes("Traceback") ? text.replace(FRAME, "") : text);
      const those = new Set(asked);
      const share = wording => {
        const listed = words(wording), own = new Set(listed), whole = weight(listed);
        const common = weight(listed.filter(word => those.has(word)));
        if (common < Math.max(LEAST, LIKE * whole)) return 0;
        let best = 0;
        asked.forEach((word, n) => {
          if (!own.has(word)) return;
          const part = asked.slice(n, n + listed.length + MORE);
          const both = weight(part.filter(each => own.has(each)));
          const more = weight(part.filter(each => !own.has(each)), 0.5);
          best = Math.max(best, both / (whole + more));
        });
        return best >= LIKE ? best : 0;
      };
      const question = wording => {
        const own = words(wording), common = weight(own.filter(word => those.has(word)));
        const both = 2 * common / (weight(own) + weight([...those]));
        const most = common >= MUCH ? common / weight(own) : 0;
        const score = Math.max(both >= ASKED ? both : 0, most >= MOST_OF ? most : 0);
        return common >= LEAST ? score : 0;
      };
      const scores = known.map(({id, says, asked: questions}) => [id, Math.max(0,
        ...says.map(share), ...(asked.length < LONG ? questions.map(question) : []))]);
      const best = Math.max(...scores.map(([, score]) => score));
      return scores.filter(([, score]) => score && score >= CLOSE * best)
        .sort(([, one], [, other]) => other - one).slice(0, 2).map(([id]) => id);
    }

    // {first: ids of the answers, others: what else stands there, near: only by likeness}
    return text => {
      text = text.trim();
      if (!text) return {first: [], others: [], near: false};
      const names = named(text);
      if (names.length) return {first: names, others: [], near: false};
      const [first, others] = wordForWord(plain(text));
      if (first.length) return {first, others, near: false};
      const parts = part(text);
      return {first: parts.length ? parts : like(text), others: [], near: true};
    };
  };

  function less(one, other) {
    for (let n = 0; n < one.length; n++)
      if (one[n] !== other[n]) return one[n] < other[n];
    return false;
  }
};
