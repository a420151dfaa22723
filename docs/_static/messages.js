// The field on the page of errors: it finds the entries that fit a pasted text. The table
// (messages-table.js) and the finder (find.js) stand beside this script, and are loaded
// when somebody looks for something.
"use strict";

{
  const script = document.currentScript.src;
  const field = document.getElementById("message");
  const place = document.getElementById("messages-found");
  const WAIT = 150;  // ms without a key, then it looks
  const LEAST = 4;  // characters that are looked for
  const ALSO = 3;  // entries that are named below the answers

  // Address of a script beside this one, of the same version (?v=…).
  const beside = name => new URL(name + new URL(script).search, script).href;

  // <script>, as fetch() reads no file of a page that is opened as a file.
  const run = name => new Promise((done, failed) => document.head.append(
    Object.assign(document.createElement("script"),
      {src: beside(name), onload: done, onerror: failed})));

  // The table, loaded once: {rules, numbers, phrases, places, entries, known: id → entry,
  // pages, cells, shown}.
  let coming;
  const load = () => coming ??= run("messages-table.js").then(() => {
    const {fields, rows, ...others} = messageTable;
    const entries = rows.map(
      row => Object.fromEntries(row.map((value, n) => [fields[n], value])));
    return {...others, entries, known: new Map(entries.map(entry => [entry.id, entry]))};
  }).catch(error => {
    coming = undefined;  // the next time may have more luck
    throw error;
  });

  // In a thread of its own, so that a long text keeps nobody from typing. A page that is
  // opened as a file can have none.
  let finding;
  window.findMessage = async text => (await finder())(text);
  const finder = () => finding ??= start().catch(error => {
    finding = undefined;
    throw error;
  });
  async function start() {
    const {rules, numbers, phrases, places, entries} = await load();
    const table = {rules, numbers, phrases, places, entries};
    if (location.protocol === "file:") {
      await Promise.all(["numbers.js", "places.js", "find.js"].map(run));
      return finderOf(table);
    }
    const worker = new Worker(beside("find-worker.js"));
    const ask = given => new Promise((done, failed) => {  // one at a time
      worker.onmessage = ({data}) => done(data);
      worker.onerror = failed;
      worker.postMessage(given);
    });
    await ask(table);
    return ask;
  }

  // ------------------------------------------------------------------------------------
  // What is shown. All of it as text: no word of a paste or of the table becomes HTML.

  const element = (name, ...inner) => {
    const made = document.createElement(name);
    made.append(...inner);
    return made;
  };
  const link = (text, address) => Object.assign(element("a", text), {href: address});
  const list = (kind, items) => {
    const lines = items.map(item => element("li", ...[item].flat()));
    return lines.length ? [element(kind, ...lines)] : [];
  };

  const anchor = id => `message-${id.replace(/[^a-z0-9]+/g, "-")}`;
  const pageOf = ({pages}, id) => `errors/${pages[id.split("/")[0]]}.html`;
  const toEntry = (table, id, text = table.known.get(id).title) =>
    link(text, `${pageOf(table, id)}#${anchor(id)}`);
  // What an entry is called that is found: the wording of it that fits, as look_up says.
  const headline = ({known}, {said, listing}, id) => {
    const {heading, title} = known.get(id);
    return listing.includes(id) ? title : said[id] || heading || title;
  };

  // An entry: what it means, what to do, what it is not, where it is explained.
  function answer(table, found, id) {
    const {means, do: lines, unlike, lesson} = table.known.get(id);
    const code = element("pre", lines), block = element("div", element("div", code));
    inLines(code);  // of site.js
    block.className = "message highlight-text notranslate";
    block.firstChild.className = "highlight";
    const apart = unlike.map(([id, told]) => ["Not ", toEntry(table, id), `: ${told}`]);
    const cells = [lesson, id].filter(key => key in table.cells)
      .map(key => link(...table.cells[key]));
    const further = list("ul", [...apart, ...cells]);
    const head = toEntry(table, id, headline(table, found, id));
    return [head, element("p", means), block, ...further];
  }

  // What is found, as elements. first, others: ids; near: by likeness only; listing: those
  // of them that code is like; said: id → the wording that fits; unknown: the line that
  // failed, if it is not known; notes: sentences that numbers were read to; places:
  // {title, url} of pages; tracker: [library, owner/repository or "", whether it is not
  // PyTorch's]; search: what to search for there; missing: what the text lacks, as a
  // sentence.
  function told(table, found) {
    const {first, others, near, listing, unknown, notes, places = []} = found;
    const parts = [];
    const say = (...inner) => parts.push(element("p", ...inner));
    if (!first.length && found.missing) say(found.missing);
    if (unknown)
      say("The line that failed is not known here: ", element("code", unknown), " ",
        ...whose(found));
    else if (places.length) {
      say("Not known here as a message. Pages that are about it:");
      parts.push(...list("ul", places.map(({title, url}) => link(title, url))));
      say(...whose(found));
    } else if (!first.length) say("Not known here, and no guess. ", ...whose(found));
    notes.forEach(note => say(note));
    if (first.length) {
      if (near) say("Not word for word. Most like it:");
      else if (listing.includes(first[0])) say("Lines of your code are like these, which"
        + " are old, or may fail:");
      else if (unknown) say("What else stands in your text:");
      parts.push(...list("ol", first.map(id => answer(table, found, id))));
    }
    if (others.length) {
      say("Also in your text:");
      parts.push(...list("ul", others.slice(0, ALSO)
        .map(id => toEntry(table, id, headline(table, found, id)))));
    }
    return parts;
  }

  // Whose message it is, and where its makers are asked.
  function whose({search, tracker: [library, repository, foreign]}) {
    const issues = `github.com/${repository}/issues`;
    const there = link(issues, `https://${issues}`);
    const asked = element("code", search);
    if (!foreign) return ["Search for ", asked, " in ", there, " and at discuss.pytorch.org."];
    const makers = repository ? ["; its makers read ", there, "."] : ["."];
    return [`This is a message of ${library}, not of PyTorch`, ...makers];
  }

  // One at a time: who types on meanwhile gets the next.
  let looking = false;
  async function show() {
    if (looking) return;
    looking = true;
    try {
      let asked;
      do {
        asked = field.value;
        if (asked.trim().length < LEAST) place.replaceChildren();
        else {
          if (!place.hasChildNodes()) place.append("Looking …");
          place.replaceChildren(...told(await load(), await findMessage(asked)));
          fitPhone(place);
        }
      } while (asked !== field.value);
    } catch (error) {
      place.replaceChildren(element("p", "The table of messages did not load. Type on to"
        + " try again, or look through the groups below."));
      throw error;
    } finally {
      looking = false;
    }
  }

  let pause;
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(show, WAIT);
  });
  field.addEventListener("focus", () => finder().catch(() => {}));
  const given = new URLSearchParams(location.search).get("message");
  if (given) field.value = given;
  if (field.value) show();  // a browser keeps what was typed

  // ------------------------------------------------------------------------------------
  // Addresses from before the entries had pages of their own

  async function follow() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name || document.getElementById(name)) return;
    const group = document.querySelector(`a[href$="errors/${CSS.escape(name)}.html"]`);
    if (group) return location.replace(group.href);
    if (!name.startsWith("message-")) return;
    const table = await load();
    const id = table.shown[name] ?? table.entries.find(({id}) => anchor(id) === name)?.id;
    if (id) location.replace(`${pageOf(table, id)}#${name}`);
  }
  addEventListener("hashchange", follow);
  follow();
}
