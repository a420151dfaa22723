// The finder in a thread of its own. It is sent the table first, then texts, and answers
// each. Its scripts are of the same version (?v=…).
"use strict";

importScripts(...["numbers.js", "places.js", "find.js"].map(name => name + location.search));

let find;
addEventListener("message", ({data}) => {
  if (typeof data === "string") return postMessage(find(data));
  find = finderOf(data);
  postMessage("ready");
});
