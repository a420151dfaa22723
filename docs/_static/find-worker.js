// The finder in a thread of its own. It is sent {rules, numbers, entries} first, then
// texts, and answers each. Its finder is of the same version (?v=…).
"use strict";

importScripts(`numbers.js${location.search}`, `find.js${location.search}`);

let find;
addEventListener("message", ({data}) => {
  if (typeof data === "string") return postMessage(find(data));
  find = lookup(data.rules, readNumbers(data.numbers))(data.entries);
  postMessage("ready");
});
