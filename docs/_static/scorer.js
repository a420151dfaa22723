// How Sphinx's search orders what it finds: its own numbers, but a heading with the very
// words comes first. Sphinx copies this into language_data.js; `var`, because
// searchtools.js has a `var Scorer` of its own.
var Scorer = {
  score: ([, , anchor, , score]) => score + (anchor ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
