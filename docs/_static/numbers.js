// What the numbers in a message say, as numbers.py of packages/torch_messages, which says
// why, and by the same rules, numbers.json: readNumbers(rules)(text) gives sentences, each
// as [id of its rule, sentence].
"use strict";

const readNumbers = rules => {
  const {PARTS, UNITS, STEPS, TABLES, FAMILIES, MOST, NOTES} = rules;
  const known = Object.create(null);
  const whole = text =>
    Object.keys(PARTS).reduce((all, name) => all.replaceAll("@" + name, PARTS[name]), text);
  const pattern = text => known[text] ??= new RegExp(whole(text), "g");
  const find = (expression, text) => text.matchAll(pattern(expression)).next().value;
  const defined = object =>
    Object.fromEntries(Object.entries(object ?? {}).filter(([, value]) => value !== undefined));

  function number(value) {
    if (typeof value !== "string") return value;
    const place = /^(-?\d+(?:\.\d+)?) ?([A-Za-z]*)/.exec(value);
    return place ? place[1] * (UNITS[place[2]] ?? 1) : undefined;
  }
  function operand(each, values) {
    if (/^[a-z]+2?$/.test(each)) each = values[each];
    return number(each) ?? each;
  }
  const computed = {
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
  };
  const compared = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "==": (a, b) => a === b, "!=": (a, b) => a !== b, "%": (a, b) => b > 0 && a % b === 0,
  };
  const holds = (values, [name, sign, ...others]) => {
    const [own, ...all] = [name, ...others].map(each => operand(each, values));
    return ![own, ...all].includes(undefined)
      && compared[sign](own, all.length > 1 ? all[0] * all[1] : all[0]);
  };

  const rounded = value => String(Math.floor(value * 10 + 0.5) / 10);
  function human(value, {limit, by, units}) {
    units = units.split(" ");
    for (; Math.abs(value) >= limit && units.length > 1; units.shift()) value /= by;
    return `${rounded(value)} ${units[0]}`;
  }
  function shown(value, how) {
    if (value === undefined) return value;
    if (STEPS[how]) return human(number(value), STEPS[how]);
    if (how)
      return Object.entries(TABLES[how]).find(([keys]) => keys.split("|").includes(value))?.[1];
    return typeof value === "string" ? value : rounded(value);
  }
  function filled(template, values) {
    let all = true;
    const text = template.replace(/\{(\w+):?(\w*)\}/g, (_, name, how) => {
      const part = shown(values[name], how);
      all &&= part !== undefined;
      return part;
    });
    return all ? text : undefined;
  }

  function read(family, text) {
    const found = [];
    for (const expression of family.read) {
      let left = MOST;
      for (const {groups} of text.matchAll(pattern(expression))) {
        if (!left--) break;
        const values = defined(groups);
        for (const [name, one, sign, two] of family.let ?? []) {
          const terms = [operand(one, values), operand(two, values)];
          if (!(name in values) && !terms.includes(undefined))
            values[name] = computed[sign](...terms);
        }
        found.push(values);
      }
    }
    return found;
  }
  const second = values =>
    Object.fromEntries(Object.entries(values).map(([name, value]) => [name + "2", value]));
  const pairs = found => found.flatMap(one =>
    found.filter(two => two !== one).map(two => ({...one, ...second(two)})));
  function sentence(family, text) {
    const found = read(family, text);
    for (const rule of family.rules) {
      const beside = find(rule.also ?? "", text);
      if (!beside || (rule.unless && find(rule.unless, text))) continue;
      for (let values of rule.pair ? pairs(found) : found) {
        values = {...values, ...defined(beside.groups)};
        const told = (rule.if ?? []).every(each => holds(values, each))
          && filled(rule.says, values);
        if (told) return [rule.id, told];
      }
    }
  }

  return text => {
    text = text.replace(pattern(rules.COLORS), "").replace(pattern(rules.SPACE), " ");
    return FAMILIES.filter(family => family.has.some(word => text.includes(word)))
      .map(family => sentence(family, text)).filter(Boolean).slice(0, NOTES);
  };
};
