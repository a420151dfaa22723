// What the numbers in a message say, as numbers.py of packages/torch_messages, which says
// why, and with the same rules, numbers.json: readNumbers(rules)(text) gives sentences.
"use strict";

const readNumbers = rules => {
  const {PARTS, UNITS, STEPS, TABLES, FAMILIES, MOST, NOTES} = rules;
  const SHOWN = /\{(\w+):?(\w*)\}/g, made = new Map();

  function pattern(expression) {
    if (!made.has(expression)) {
      let whole = expression;
      for (const [name, part] of Object.entries(PARTS)) whole = whole.replaceAll("@" + name, part);
      made.set(expression, new RegExp(whole, "g"));
    }
    return made.get(expression);
  }

  const find = (expression, text) => text.matchAll(pattern(expression)).next().value;
  const known = values =>
    Object.fromEntries(Object.entries(values ?? {}).filter(([, value]) => value !== undefined));

  function number(value) {
    if (typeof value !== "string") return value;
    const place = /(-?\d+(?:\.\d+)?) ?([A-Za-z]*)/.exec(value);
    return place ? Number(place[1]) * (UNITS[place[2]] ?? 1) : undefined;
  }

  function rounded(value) {
    return String(Math.floor(value * 10 + 0.5) / 10);
  }

  function human(value, {limit, by, units}) {
    units = units.split(" ");
    while (Math.abs(value) >= limit && units.length > 1) value /= by, units.shift();
    return `${rounded(value)} ${units[0]}`;
  }

  function shown(value, how) {
    if (value === undefined) return undefined;
    if (STEPS[how]) return human(number(value), STEPS[how]);
    if (how)
      return Object.entries(TABLES[how]).find(([keys]) => keys.split("|").includes(value))?.[1];
    return typeof value === "string" ? value : rounded(value);
  }

  function filled(template, values) {
    let lacks = false;
    const text = template.replace(SHOWN, (_, name, how) => {
      const part = shown(values[name], how);
      lacks ||= part === undefined;
      return part;
    });
    return lacks ? undefined : text;
  }

  function operand(each, values) {
    if (typeof each !== "string") return each;
    if (each.includes("{")) each = filled(each, values);
    else if (/^[a-z]+2?$/.test(each)) each = values[each];
    return number(each) ?? each;
  }

  function withLet(values, list = []) {
    values = known(values);
    for (const [name, one, sign, two] of list) {
      const a = operand(one, values), b = operand(two, values);
      if (a === undefined || b === undefined || name in values) continue;
      values[name] = sign === "+" ? a + b : sign === "-" ? a - b : sign === "*" ? a * b : a / b;
    }
    return values;
  }

  const compared = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "==": (a, b) => a === b, "!=": (a, b) => a !== b, "%": (a, b) => b > 0 && a % b === 0,
  };

  function holds([name, sign, ...others], values) {
    if (!(name in values)) return false;
    if (sign === "~") return Boolean(find(others[0], values[name]));
    const own = number(values[name]);
    others = others.map(each => operand(each, values));
    if (others.includes(undefined)) return false;
    if (sign === "within")
      return others.some((least, n) => n % 2 === 0 && least <= own && own <= others[n + 1]);
    const other = others.length === 1 ? others[0] : others[0] * others[1];
    if (typeof other === "string") return compared[sign](values[name], other);
    return own !== undefined && compared[sign](own, other);
  }

  function said(rule, values, text) {
    if (rule.also) {
      const place = find(rule.also, text);
      if (!place) return undefined;
      values = withLet({...values, ...place.groups}, rule.let);
    }
    if (rule.unless && find(rule.unless, text)) return undefined;
    return (rule.if ?? []).every(condition => holds(condition, values))
      ? filled(rule.says, values) : undefined;
  }

  function* places(family, text) {
    for (const expression of family.read) {
      let left = MOST;
      for (const place of text.matchAll(pattern(expression))) {
        if (left-- === 0) break;
        yield withLet(place.groups, family.let);
      }
    }
  }

  function sentence(family, text) {
    const found = [...places(family, text)];
    const second = values =>
      Object.fromEntries(Object.entries(values).map(([name, value]) => [name + "2", value]));
    for (const rule of family.rules) {
      const tried = !rule.pair ? found : found.flatMap((one, n) =>
        found.filter((_, m) => m !== n).map(two => ({...one, ...second(two)})));
      for (const values of tried) {
        const text_ = said(rule, values, text);
        if (text_) return text_;
      }
    }
    return undefined;
  }

  return text => {
    text = text.replace(pattern(rules.COLORS), "").replace(pattern(rules.SPACE), " ");
    return FAMILIES.filter(family => family.has.some(word => text.includes(word)))
      .map(family => sentence(family, text)).filter(Boolean).slice(0, NOTES);
  };
};
