// Finds the entries of the table that fit a text: lookup(rules, ruled)(entries)(text), a
// function of these and nothing else. As match.py, paste.py, near.py, code.py and
// messages.py of packages/torch_messages, which say why, under their names and with the
// same numbers, words and expressions, its rules.json. A test holds that both find the same.
// ruled: readNumbers(…) of numbers.js
"use strict";

const lookup = (rules, ruled = () => []) => {
  const {GAP, MOST, DEPTH, LIKE, MORE, LEAST, ASKED, MUCH, PART, LONG} = rules;
  const all = source => new RegExp(source, "g");
  const set = words => new Set(words.split(" "));
  // whether an expression stands at a place of a text
  const at = source => {
    const there = new RegExp(source, "y");
    return (text, place = 0) => {
      there.lastIndex = place;
      return there.test(text);
    };
  };

  // ------------------------------------------------------------------------------------
  // As Python has it

  // what str.strip() takes for spaces
  const SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004"
    + "\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
  const lstrip = (text, some = SPACES) => {
    let n = 0;
    while (n < text.length && some.includes(text[n])) n++;
    return text.slice(n);
  };
  const rstrip = (text, some = SPACES) => {
    let n = text.length;
    while (n > 0 && some.includes(text[n - 1])) n--;
    return text.slice(0, n);
  };
  const strip = (text, some) => lstrip(rstrip(text, some), some);

  // Whether a tuple is less than another.
  function less(one, other) {
    const n = one.findIndex((value, n) => value !== other[n]);
    return n >= 0 && one[n] < other[n];
  }

  // A text whose characters have one unit each, and what gives them back.
  function narrow(text) {
    if (!/[\ud800-\udbff]/.test(text)) return [text, same => same];
    const every = new Set(text), wide = [...every].filter(each => each.length > 1);
    const free = Array.from({length: 0x1900}, (_, n) => String.fromCharCode(0xe000 + n))
      .filter(each => !every.has(each));
    const to = new Map(wide.map((each, n) => [each, free[n] ?? "\ufffd"]));
    const from = new Map([...to].map(([each, unit]) => [unit, each]));
    return [
      text.replace(/[\u{10000}-\u{10ffff}]/gu, each => to.get(each)),
      line => line.replace(/[\ue000-\uf8ff]/g, unit => from.get(unit) ?? unit),
    ];
  }

  // ------------------------------------------------------------------------------------
  // messages.py: words, and where a wording stands

  const COLORS = all(rules.COLORS), SPACE = all(rules.SPACE), WORD = all(rules.WORD);
  const PREFIX = new RegExp(rules.PREFIX, "gi"), HAN = all(rules.HAN);
  const BETWEEN_HAN = all(rules.BETWEEN_HAN);
  const ENDING = new RegExp(rules.ENDING), ASKING = set(rules.ASKING);
  const QUOTES = Object.entries(rules.QUOTES)
    .map(([quote, marks]) => [quote, all(`[${marks}]`)]);
  const LETTER = at(rules.LETTER), GOES_ON = at(rules.GOES_ON);

  function plain(text) {
    text = text.replace(COLORS, "").replace(PREFIX, "");
    for (const [quote, marks] of QUOTES) text = text.replace(marks, quote);
    return strip(text.replace(SPACE, " ")).toLowerCase();
  }

  const piecesOf = wording => plain(wording).split("…").map(piece => strip(piece));

  // [start, end] of the first places of a wording, as its pieces, in a plain text
  function placesOf(pieces, text) {
    const isOpen = pieces.length > 1 && pieces.at(-1) === "", found = [];
    let start = text.indexOf(pieces[0]);
    while (start >= 0 && found.length < rules.PLACES) {
      const end = endOf(pieces, text, start + pieces[0].length);
      if (end >= 0 && !goesOn(text, start) && (isOpen || !goesOn(text, end)))
        found.push([start, end]);
      start = start < text.length ? text.indexOf(pieces[0], start + 1) : -1;
    }
    return found;
  }

  function endOf(pieces, text, end) {
    for (const piece of pieces.slice(1)) {
      const place = text.slice(end, end + GAP + piece.length).indexOf(piece);
      if (place < 0) return -1;
      end += place + piece.length;
    }
    return end;
  }

  const goesOn = (text, place) =>
    place > 0 && LETTER(text, place - 1) && GOES_ON(text, place);

  function words(text) {
    text = plain(text).replace(BETWEEN_HAN, "");
    const stems = (text.match(WORD) ?? []).map(word => word.replace(ENDING, ""));
    for (const run of text.match(HAN) ?? [])
      for (let n = 0; n < run.length - 1; n++) stems.push(run.slice(n, n + 2));
    return stems.filter(stem => !ASKING.has(stem));
  }

  // Whether a text has a name, and not as a part of another.
  function has(text, name) {
    const letter = /[a-z0-9_]/;
    for (let n = text.indexOf(name); n >= 0; n = text.indexOf(name, n + 1))
      if (!letter.test(text[n - 1] ?? "") && !letter.test(text[n + name.length] ?? ""))
        return true;
    return false;
  }

  // ------------------------------------------------------------------------------------
  // code.py: a listing as statements of tokens and groups {bracket, parts, loose}

  const OPENING = new Set("([{"), CLOSING = new Set(")]}"), ANY = "…";
  const TOKEN = all(rules.TOKEN), PIECE = all(rules.PIECE);
  const BEGINS = at(rules.BEGINS), OPERAND = at(rules.OPERAND);
  const NO_CODE = at(rules.NO_CODE), NO_FIRST = at(rules.NO_FIRST);
  const OPERATORS = set(rules.OPERATORS), LEADING = set(rules.LEADING);
  const JOINING = set(rules.JOINING), BLOCKS = set(rules.BLOCKS), ALONE = set(rules.ALONE);
  const isWord = each => typeof each === "string";
  const isAny = part => part.length === 1 && part[0] === ANY;
  const first = line => isWord(line[0]) ? line[0] : "";
  const opens = token => OPENING.has(token) - CLOSING.has(token);

  function read(text) {
    const lines = logical(text).map(nested).flatMap(blocks).filter(line => line.length);
    const statements = inFull(lines);
    return {statements, words: new Set(wordsIn(statements))};
  }

  function flat(line, found = []) {
    for (const each of line)
      if (isWord(each)) found.push(each);
      else each.parts.forEach(part => flat(part, found));
    return found;
  }
  const wordsIn = lines => lines.flatMap(line => flat(line))
    .flatMap(each => each[0] === "'" ? [each] : each.split("."));

  function logical(text) {
    const lines = [];
    let line = [], depth = 0, end = 0;
    for (const token of text.match(TOKEN) ?? []) {
      end += token.length;
      if (token === "\n" || token === ";") {
        if (depth <= 0 || token === "\n" && BEGINS(text, end)) {
          lines.push(line);
          [line, depth] = [[], 0];
        }
      } else if (!" \t\r\f\\#".includes(token[0])) {
        depth += opens(token);
        line.push(string(token));
      }
    }
    return [...lines, line];
  }

  function string(token) {
    if (!"\"'".includes(token.at(-1)) || token.length < 2) return token;
    const bare = lstrip(token, "rRbBfFuU");
    const marks = /^("""|''')/.test(bare) && bare.length > 5 ? 3 : 1;
    return `'${bare.slice(marks, -marks)}'`;
  }

  function nested(tokens) {
    const whole = [], stack = [[null, [whole]]];
    let deeper = 0;
    const close = cut => {
      const [bracket, parts] = stack.pop();
      const kept = parts.filter(part => part.length && !isAny(part));
      stack.at(-1)[1].at(-1).push({bracket, parts: kept, loose: cut || parts.some(isAny)});
    };
    for (const token of tokens) {
      if (OPENING.has(token) && stack.length > DEPTH) deeper++;
      else if (deeper) deeper -= CLOSING.has(token);
      else if (OPENING.has(token)) stack.push([token, [[]]]);
      else if (CLOSING.has(token)) {
        if (stack.length > 1) close(false);
      } else if (token === "," && stack.length > 1) stack.at(-1)[1].push([]);
      else stack.at(-1)[1].at(-1).push(token);
    }
    while (stack.length > 1) close(true);
    return whole;
  }

  function blocks(line) {
    const end = BLOCKS.has(first(line)) ? line.indexOf(":") + 1 : 0;
    return end ? [line.slice(0, end), line.slice(end)] : [line];
  }

  function inFull(statements) {
    const names = new Map(Object.entries(rules.USUAL)), imports = [];
    for (const [whole, name] of statements.flatMap(imported)) {
      imports.push([whole]);
      if (name) names.set(name, whole);
    }
    return [...statements.map(line => isImport(line) ? line : renamed(line, names)),
      ...imports];
  }

  const isImport = line => first(line) === "import" || first(line) === "from";

  function imported(line) {
    if (!isImport(line)) return [];
    const all = flat(line).filter(word => word !== ","), begin = all.indexOf("import") + 1;
    const source = all[0] === "from" ? `${all[1]}.` : "";
    const words = begin ? all.slice(begin) : [];
    return words.flatMap((word, n) => {
      if (word === "as" || words[n - 1] === "as") return [];
      const name = words[n + 1] === "as" && words[n + 2] || source && word;
      return [[source + word, name]];
    });
  }

  const renamed = (line, names) => line.map((each, n) => {
    if (!isWord(each))
      return {...each, parts: each.parts.map(part => renamed(part, names))};
    if (each[0] === "'" || line[n + 1] === "=") return each;
    const [name] = each.split(".", 1);
    return (names.get(name) ?? name) + each.slice(name.length);
  });

  function areCode(lines) {
    const found = [];
    let depth = 0;
    for (const text of lines) {
      const tokens = (text.match(TOKEN) ?? [])
        .filter(each => strip(each, " \t\\") && each[0] !== "#");
      const inside = depth > 0 && !BEGINS(text) && !KINDS.error.test(text);
      const line = nested(tokens);
      const isCode = !tokens.length ? found.length > 0 && found.at(-1)
        : inside ? isSequence(line) : isStatement(line);
      const opened = tokens.reduce((sum, each) => sum + opens(each), 0);
      depth = isCode ? Math.max(0, depth * inside + opened) : 0;
      found.push(isCode);
    }
    return found;
  }

  function isStatement(line) {
    const has = word => line.includes(word), begin = first(line);
    if (begin && NO_FIRST(begin)) return false;
    if (BLOCKS.has(begin)) {
      if (!has(":")) return false;
    } else if (has(":") && !has("lambda") && !(has("=") && line[1] === ":")) return false;
    const alone = line.length === 1 && !ALONE.has(begin);
    return line.length > 0 && isSequence(line) && !alone && !JOINING.has(line.at(-1));
  }

  const isSequence = line => !line.some(each => isWord(each) && NO_CODE(each))
    && !JOINING.has(line[0]) && line.every((each, n) => mayFollow(line[n - 1], each));

  // before: undefined at the beginning
  function mayFollow(before, each) {
    if (LEADING.has(each))
      return [undefined, "async", ":", "yield", "raise"].includes(before) || each === "import";
    if (JOINING.has(each)) return !JOINING.has(before);
    if (each === "not") return !isOperand(before);
    return !(isOperand(before) && isOperand(each)) || adjoins(before, each);
  }

  const isOperand = each => each !== undefined
    && (!isWord(each) || !OPERATORS.has(each) && OPERAND(each));

  const adjoins = (before, each) => !isWord(each) ? each.bracket !== "{"
    : each[0] === "." || each[0] === "'" && isWord(before) && before[0] === "'";

  const pieces = new Map();  // what entries want, as it is written → as it is read
  function pieceOf(text) {
    if (!pieces.has(text)) {
      const inner = text.replace(/^\^/, "").replace(/\$$/, "");
      const lines = inner.split("\n").map(line =>
        nested((line.match(PIECE) ?? []).filter(token => strip(token)).map(string)));
      const words = wordsIn(lines).filter(word => OPERAND(word) && !word.includes(ANY));
      pieces.set(text, {lines, words, first: text[0] === "^", last: text.endsWith("$")});
    }
    return pieces.get(text);
  }

  function holds(listing, text) {
    if (text[0] === "!") return !holds(listing, text.slice(1));
    const {lines, words, first, last} = pieceOf(text), {statements} = listing;
    if (!words.every(word => listing.words.has(word))) return false;
    for (let n = 0; n <= statements.length - lines.length; n++)
      if (lines.every((line, k) => standsIn(line, statements[n + k], first && k === 0,
        last && k === lines.length - 1))) return true;
    return false;
  }

  function standsIn(line, statement, first = false, last = false) {
    const starts = first ? 1 : statement.length;
    for (let start = 0; start < starts; start++)
      for (const end of ends(line, 0, statement, start, !last))
        if (end === statement.length || !last) return true;
    return !first && !last && statement.some(
      each => !isWord(each) && each.parts.some(part => standsIn(line, part)));
  }

  function* ends(wanted, n, line, start, more = false) {
    if (n === wanted.length) yield start;
    else if (wanted[n] === ANY)
      for (let end = start; end <= line.length; end++)
        yield* ends(wanted, n + 1, line, end, more);
    else if (start < line.length
      && same(wanted[n], line[start], more && n === wanted.length - 1))
      yield* ends(wanted, n + 1, line, start + 1, more);
  }

  function same(wanted, each, more) {
    if (!isWord(wanted) || !isWord(each))
      return !isWord(wanted) && !isWord(each) && wanted.bracket === each.bracket
        && argumentsHold(wanted, each);
    if (wanted === each) return true;
    if (wanted.includes(ANY) && (wanted[0] === "'") === (each[0] === "'"))
      return isNamed(wanted, each);
    if (each[0] === "'" || !OPERAND(wanted)) return false;
    const name = `.${each}`, dotted = wanted[0] === "." ? wanted : `.${wanted}`;
    return name.endsWith(dotted) || more && name.includes(`${dotted}.`);
  }

  // Whether a name or a string is one with … in it; of a name its last parts may be.
  function isNamed(wanted, text) {
    const [begin, ...others] = wanted.split(ANY);
    const whole = "…'".includes(wanted[0]);
    return !text.includes("\n") && (spans([begin, ...others], text)
      || !whole && spans(["", `.${begin}`, ...others], text));
  }

  function spans(parts, text) {
    const [begin, ...others] = parts, last = others.pop();
    let place = begin.length;
    if (!text.startsWith(begin)) return false;
    for (const part of others) {
      const next = text.indexOf(part, place);
      if (next < 0) return false;
      place = next + part.length;
    }
    return text.endsWith(last) && text.length - last.length >= place;
  }

  function argumentsHold(wanted, group) {
    if (!wanted.loose && wanted.parts.length !== group.parts.length) return false;
    return wanted.parts.every((each, n) => group.parts.some((argument, place) =>
      each[1] === "=" ? argument[0] === each[0] && argument[1] === "="
        && isArgument(each.length > 2 ? each.slice(2) : [ANY], argument.slice(2))
        : argument[1] === "=" ? isArgument(each, argument.slice(2))
          : place === n && isArgument(each, argument)));
  }

  function isArgument(wanted, argument) {
    for (const end of ends(wanted, 0, argument, 0)) if (end === argument.length) return true;
    return false;
  }

  // ------------------------------------------------------------------------------------
  // paste.py: what stands in a paste

  const SAYS = {death: 3, error: 3, text: 2, warning: 1, frame: 0, joint: 0};
  const KINDS = Object.fromEntries(Object.entries(rules.KINDS)
    .map(([kind, sign]) => [kind, new RegExp(sign)]));
  const SIGN = all(rules.SIGN), TAG = all(rules.TAG), ENTITY = new RegExp(rules.ENTITY);
  const LOGGED = new RegExp(rules.LOGGED), COMMENT = new RegExp(rules.COMMENT);
  const isText = ([kind, line]) => kind === "text" && line !== "";

  function clean(text) {
    if (text.length > rules.WHOLE) text = windowOf(text);
    text = text.replaceAll("\r\n", "\n").replace(COLORS, "");
    if (ENTITY.test(text)) {
      text = text.replace(TAG, "");
      for (const [entity, letter] of Object.entries(rules.ENTITIES))
        text = text.replaceAll(entity, letter);
    }
    return strip(text);
  }

  function windowOf(text) {
    const part = Math.floor(rules.WHOLE / 4), middle = text.slice(part, -part);
    const found = [];
    let left = 2 * part;
    for (const {0: sign, index} of middle.matchAll(SIGN)) {
      const around = middle.slice(
        Math.max(0, index - rules.AROUND), index + sign.length + rules.AROUND);
      if (around.length > left) break;
      found.push(around);
      left -= around.length;
    }
    return [text.slice(0, part), ...found, text.slice(-part)].join("\n");
  }

  // {lines: [kind, line] of what is no code, code, text: the lines plain, starts}
  function sort(text) {
    const every = text.split("\n");
    const logged = every.map(line => line.replace(PREFIX, ""));
    const bare = logged.map(line => line.replace(LOGGED, ""));
    const isError = new RegExp(rules.KINDS.error);
    const kinds = kindsOf(bare)
      .map((kind, n) => kind === "text" && isError.test(logged[n]) ? "error" : kind);
    for (const [start, end] of runs(bare, kinds)) kinds.fill("code", start, end);
    const lines = [], shown = [], starts = [];
    let here = 0;
    every.forEach((line, n) => {
      const isCode = kinds[n] === "code";
      const comment = isCode ? line.match(COMMENT)?.[0] ?? "" : line;
      if (isCode && !comment) return;
      lines.push([isCode ? "frame" : kinds[n], strip(comment)]);
      shown.push(plain(comment));
      starts.push(here);
      here += shown.at(-1).length + (shown.at(-1) !== "");
    });
    const code = every.filter((_, n) => kinds[n] === "code").join("\n");
    return {lines, code, text: shown.filter(Boolean).join(" "), starts};
  }

  const asText = ({code}) =>
    ({lines: [["text", code]], code: "", text: plain(code), starts: [0]});

  function kindsOf(lines) {
    let frame = null;
    return lines.map(line => {
      const own = line.length - lstrip(line).length;
      let kind = Object.keys(KINDS).find(kind => KINDS[kind].test(line));
      if (kind === "frame") frame = own;
      else if (frame !== null && (own > frame || areCode([line])[0])) {
        kind = "frame";
        if (own <= frame) frame = null;
      } else frame = null;
      return kind ?? "text";
    });
  }

  function runs(lines, kinds) {
    const may = ["text", "warning", "error", "death"];
    const filled = lines.map(line => strip(line) !== "");
    const count = (from, to) => filled.slice(from, to).filter(Boolean).length;
    const isCode = areCode(lines).map((code, n) => code && may.includes(kinds[n]));
    const found = [], whole = count(0);
    let start = null;
    for (let n = 0; n <= lines.length; n++) {
      if (isCode[n] || start !== null && filled[n] === false) start ??= n;
      else if (start !== null) {
        const size = count(start, n);
        const fenced = start > 0 && lines[start - 1].startsWith("```");
        if (size > 1 || size === whole || fenced) found.push([start, n]);
        start = null;
      }
    }
    return found;
  }

  const said = ({lines}) => lines
    .filter(([kind, line]) => line && kind !== "frame" && kind !== "joint")
    .map(([, line]) => line).join("\n");

  // The number of the line at a place in a paste's text.
  function lineAt({starts}, place) {
    let low = 0, high = starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= place) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function kindAt(paste, place) {
    const {lines} = paste, own = lineAt(paste, place);
    let n = own;
    while (n > 0 && isText(lines[n])) n--;
    const above = lines[n][0];
    return lines[own][0] === "text" && ["error", "death", "warning"].includes(above)
      ? above : lines[own][0];
  }

  const saysAt = (paste, start, end) =>
    Math.max(SAYS[kindAt(paste, start)], SAYS[kindAt(paste, end - 1)]);

  // ------------------------------------------------------------------------------------
  // match.py and near.py: which entries of a table

  const BEFORE = all(rules.BEFORE), HEADS = new RegExp(rules.HEADS, "i");
  const NAME = new RegExp(`^(?:${rules.NAME})$`);
  const endsWith = (name, short) => name.endsWith("." + short);
  const bareName = name => strip(name.toLowerCase(), "-");

  return entries => {
    const counts = new Map(), total = entries.length + 1;
    const listed = entries.map(({says, asked}) => [says.map(words), asked.map(words)]);
    for (const own of listed)
      for (const word of new Set(own.flat(2))) counts.set(word, (counts.get(word) ?? 0) + 1);
    const rarity = new Map([...counts].map(([word, n]) => [word, Math.log(total / (1 + n))]));
    // of words in their order, each once: a sum of fractions depends on it
    const sum = (sorted, unknown = 1) => sorted.reduce(
      (sum, word) => sum + (rarity.get(word) ?? Math.log(total) * unknown), 0);
    const weight = (some, unknown) => sum([...new Set(some)].sort(), unknown);

    // entries as they are compared: of wordings and questions their words and weight
    const compared = listed => {
      const own = new Set(listed), sorted = [...own].sort();
      return {listed, own, sorted, whole: sum(sorted)};
    };
    const table = entries.map((entry, n) => {
      const [says, asked] = listed[n];
      return {
        ...entry,
        says: entry.says.map((wording, k) =>
          ({...compared(says[k]), wording, plain: plain(wording), pieces: piecesOf(wording)})),
        asked: asked.map((each, k) => ({...compared(each), wording: entry.asked[k]})),
        names: new Map([[entry.id, ""],
          ...entry.names.map(name => [bareName(name), entry.heading ? "" : name])]),
      };
    });

    // entry → what it is called, of those that a name leads to
    function named(name) {
      const isName = NAME.test(name), whole = bareName(name);
      const bare = isName ? whole.replace(/[(=][^\n]*/g, "") : whole;
      const byWhole = [], byEnd = [], byMessage = [];
      for (const entry of table) {
        const {names} = entry;
        const ends = each => endsWith(bare, each) || endsWith(each, bare);
        if (names.has(bare) || names.has(whole))
          byWhole.push([entry, names.get(bare) || names.get(whole)]);
        else if (!isName) continue;
        else if ([...names.keys()].some(ends))
          byEnd.push([entry, names.get([...names.keys()].find(ends))]);
        else {
          const told = entry.says.find(wording => has(wording.plain, bare));
          if (told) byMessage.push([entry, told.wording]);
        }
      }
      const only = byMessage.length === 1 ? byMessage : [];
      const best = [byWhole, byEnd, only].find(found => found.length) ?? [];
      return new Map(best.slice(0, MOST));
    }

    // said: entry → its wording that fits
    function ofPaste(paste) {
      const ranked = rankedIn(paste), unknown = unknownIn(paste, ranked);
      let answers = ranked.filter(
        ({start, end}) => start === ranked[0].start && end === ranked[0].end);
      if (unknown && answers.length && !isSerious(answers[0])) answers = [];
      const told = answers.some(({entry}) => !entry.cover);
      const others = ranked.filter(
        place => !answers.includes(place) && !(told && place.entry.cover));
      const text = (unknown || said(paste)).slice(0, rules.SHORT);
      const near = !answers.length && (unknown || !others.length) ? nearest(text) : [];
      const found = [...answers.map(({entry}) => entry), ...near.map(([entry]) => entry)];
      const fits = [...ranked.map(({entry, wording}) => [entry, wording]), ...near];
      return {found, others: others.map(({entry}) => entry), near: near.length > 0,
        unknown, said: new Map(fits)};
    }

    // Places {entry, wording, start, end, rank, from, to (lines)}, the best first.
    function rankedIn(paste) {
      const best = new Map(), {text} = paste;
      for (const entry of table)
        for (const {pieces, whole, wording} of entry.says)
          for (const span of placesOf(pieces, text)) {
            const said = [+(saysAt(paste, ...span) > 1), whole, ...span];
            if (!best.has(entry) || less(best.get(entry).said, said))
              best.set(entry, {said, wording});
          }
      const every = [...best], rank = ranking(paste);
      return every.filter(([, {said: [, weight, start, end]}]) => !every.some(
        ([, {said: [, more, from, to]}]) => from <= start && end <= to && more > weight))
        .map(([entry, {said: [, weight, start, end], wording}]) => ({
          entry, wording, start, end, rank: rank(entry, start, end, weight),
          from: lineAt(paste, start), to: lineAt(paste, end - 1),
        }))
        .sort((one, two) => less(two.rank, one.rank) ? -1 : less(one.rank, two.rank) ? 1 : 0);
    }

    function ranking(paste) {
      const original = paste.text.lastIndexOf(rules.ORIGINAL);
      const joint = [...paste.text.matchAll(BEFORE)].at(-1)?.index ?? -1;
      return (entry, start, end, weight) => {
        const says = saysAt(paste, start, end);
        const isCause = original >= 0 ? start > original : start < joint;
        return [+!entry.harmless, Math.min(says, 2), +!entry.cover, +isCause,
          entry.cover ? -start : start, weight];
      };
    }

    const isSerious = ({rank}) => rank[0] > 0 && rank[1] >= 2;

    function unknownIn({lines}, ranked) {
      if (ranked.some(place => !place.entry.cover && isSerious(place))) return "";
      const left = lines.flatMap(([kind], n) => {
        if (SAYS[kind] < 3) return [];
        let below = n + 1;
        while (below < lines.length && isText(lines[below])) below++;
        return ranked.some(({from, to}) => n <= to && from < below) ? [] : [lines[n]];
      });
      const errors = left.filter(([kind]) => kind === "error");
      return (errors.at(-1) ?? left.at(-1) ?? ["", ""])[1];
    }

    // [entry, its wording or question] that a text is like
    function nearest(text) {
      const isShort = words(text).length < LONG;
      for (const way of isShort ? [cut, part, like] : [cut, like, sentences]) {
        const found = way(text);
        if (found.length) return found;
      }
      return [];
    }

    function cut(text) {
      text = rstrip(plain(text).replace(HEADS, ""), " .…");
      let found = new Map(), most = 0;
      for (const entry of table)
        for (const {pieces, wording} of entry.says) {
          const size = begun(pieces, text);
          if (size > most) [found, most] = [new Map(), size];
          if (size && size === most) {
            const key = [wording.length, wording, entry.id];
            if (!found.has(entry) || less(key, found.get(entry))) found.set(entry, key);
          }
        }
      const said = most ? weight(words(text.slice(-most))) : 0;
      if (found.size > rules.CUT_ENTRIES || said < LEAST) return [];
      return [...found].sort(([, one], [, other]) => less(one, other) ? -1 : 1)
        .map(([entry, [, wording]]) => [entry, wording]);
    }

    function begun(pieces, text) {
      const whole = pieces.reduce((sum, piece) => sum + piece.length, 0);
      const start = text.lastIndexOf(pieces[0].slice(0, rules.HEAD));
      if (start < 0 || !rules.BEFORE_HEAD.includes(rstrip(text.slice(0, start)).slice(-1)))
        return 0;
      let said = 0, rest = text.slice(start);
      for (const [n, piece] of pieces.entries()) {
        if (n) {
          const place = rest.slice(0, GAP + piece.length).indexOf(piece);
          if (place < 0)
            return rest.length <= GAP && said >= rules.CUT_BETWEEN * whole ? said : 0;
          rest = rest.slice(place);
        }
        if (piece.startsWith(rest)) {
          const within = LETTER(piece, rest.length);
          said += rest.length;
          return said >= (within ? rules.CUT_WITHIN : rules.CUT_BETWEEN) * whole ? said : 0;
        }
        if (!rest.startsWith(piece)) return 0;
        said += piece.length;
        rest = rest.slice(piece.length);
      }
      return 0;
    }

    function part(text) {
      const part = strip(plain(text).replace(HEADS, ""), " .:;!-()[]<>");
      const said = weight(words(part));
      if (said < LEAST) return [];
      const holds = ({plain}) => has(plain, part);
      const found = table.filter(({says}) => says.some(holds));
      const shares = found.flatMap(({says}) => says.filter(holds))
        .map(({whole}) => said / whole);
      return found.length <= 2 && Math.max(0, ...shares) > PART
        ? found.map(entry => [entry, entry.says.find(holds).wording]) : [];
    }

    function like(text) {
      const asked = words(text), those = new Set(asked), told = weight(asked);
      return bestOf(table.map(entry => {
        const rated = entry.says.map(each => [share(each, asked, those), each.wording]);
        if (asked.length < LONG) for (const each of entry.asked)
          rated.push([question(each, those, told), each.wording]);
        return [entry, rated.reduce((one, other) => less(one, other) ? other : one, [0, ""])];
      }));
    }

    function sentences(text) {
      const scores = new Map();
      const some = text.split(new RegExp(rules.SENTENCE)).slice(0, rules.SENTENCES);
      for (const sentence of some) {
        const those = new Set(words(sentence)), told = weight(those);
        if (those.size < rules.FEW || those.size >= LONG) continue;
        for (const entry of table)
          for (const each of entry.asked) {
            const score = question(each, those, told);
            if (score > (scores.get(entry)?.[0] ?? 0)) scores.set(entry, [score, each.wording]);
          }
      }
      return bestOf([...scores]);
    }

    // scores: [entry, [score, wording]] of each
    function bestOf(scores) {
      const least = rules.CLOSE * Math.max(0, ...scores.map(([, [score]]) => score));
      return scores.filter(([, [score]]) => score && score >= least)
        .sort(([, [one]], [, [other]]) => other - one).slice(0, 2)
        .map(([entry, [, wording]]) => [entry, wording]);
    }

    function share({listed, own, sorted, whole}, asked, those) {
      const common = sum(sorted.filter(word => those.has(word)));
      if (common < LEAST || common < LIKE * whole) return 0;
      let best = 0;
      asked.forEach((word, n) => {
        if (!own.has(word)) return;
        const part = asked.slice(n, n + listed.length + MORE);
        const both = weight(part.filter(each => own.has(each)));
        const more = weight(part.filter(each => !own.has(each)), 0.5);
        best = Math.max(best, both / (whole + more));
      });
      return best >= LIKE ? best : 0;
    }

    function question({sorted, whole}, those, told) {
      const common = sum(sorted.filter(word => those.has(word)));
      if (common < LEAST) return 0;
      const ofBoth = 2 * common / (whole + told), ofIt = common >= MUCH ? common / whole : 0;
      return Math.max(ofBoth >= ASKED ? ofBoth : 0, ofIt >= rules.MOST_OF ? ofIt : 0);
    }

    function listedIn(code) {
      const listing = read(code);
      return table.filter(entry => entry.code.some(
        pieces => pieces.every(piece => holds(listing, piece))))
        .sort((one, other) => one.fine - other.fine || one.cover - other.cover);
    }

    function look(text) {
      const result = fitting(text);
      if (!result.found.length && !result.unknown) return {...result, notes: []};
      const told = ruled(text), notes = told.map(([, sentence]) => sentence);
      const chosen = told.map(([rule]) => rules.CHOSEN[rule]).find(id => id);
      if (!chosen || !result.found[0]?.id.startsWith("memory/")) return {...result, notes};
      const answer = table.find(({id}) => id === chosen), others = entry => entry !== answer;
      const wording = result.said.get(result.found[0]) ?? "";
      return {
        ...result, notes, found: [answer], near: false,
        said: new Map([...result.said, [answer, wording]]),
        others: [...result.found, ...result.others].filter(others),
        listing: result.listing.filter(others),
      };
    }

    function fitting(text) {
      const none = {
        found: [], others: [], near: false, unknown: "", listing: [], said: new Map()};
      if (!text) return none;
      const paste = sort(text), listing = listedIn(paste.code);
      if (!text.includes("\n") && (text.endsWith("()") || !listing.length)) {
        const said = named(text);
        if (said.size) return {...none, found: [...said.keys()], said};
        if (!listing.length)
          return {...ofPaste(paste.code ? asText(paste) : paste), listing};
      }
      const result = ofPaste(paste), {found, others, unknown} = result;
      if (!(found.length || others.length || unknown)) {
        const best = listing.slice(0, MOST);
        return {...none, found: best, listing: best};
      }
      const more = listing.filter(entry => !entry.fine && !found.includes(entry)
        && !others.includes(entry)).slice(0, MOST);
      return {...result, others: [...others, ...more], listing: more};
    }

    // first: ids of the answers, best first; others: of what else stands in the text;
    // near: whether those are only like it; unknown: the line that has failed and is not
    // known, or ""; listing: which of the ids are found by code; notes: what numbers say;
    // said: id → the wording that fits, of those that are found by one
    return text => {
      const [narrowed, widened] = narrow(text);
      const {found, others, near, unknown, listing, notes, said} = look(clean(narrowed));
      const ids = some => some.map(({id}) => id);
      const fits = [...found, ...others].filter(entry => said.get(entry))
        .map(entry => [entry.id, said.get(entry)]);
      return {first: ids(found), others: ids(others), near, unknown: widened(unknown),
        listing: ids(listing), notes: notes.map(widened), said: Object.fromEntries(fits)};
    };
  };
};

// What the page shows of a text: what is found, and where nothing fits pages of the course
// that are about it, whose message it is, what to search for, what the text lacks. As
// lookup.py.
const finderOf = ({rules, numbers, phrases, places, entries}) => {
  const find = lookup(rules, readNumbers(numbers))(entries);
  const said = phrasesOf(phrases, rules);
  const pages = searchPlaces(places, said), tracker = trackerOf(places);
  const here = address => address.replace(places.site, "../");
  return text => {
    const found = find(text), {first, unknown} = found;
    if (first.length) return found;
    const read = unknown ? [] : pages(text);
    return {...found, tracker: tracker(text), search: said.lineOf(text, unknown),
      missing: unknown ? "" : said.missing(text),
      places: read.map(([title, address]) => ({title, url: here(address)}))};
  };
};
