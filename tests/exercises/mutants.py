"""Wrong answers to the exercises, derived from each solution by one change to its
syntax tree.

`python -m tests.exercises.mutants` gives all of them to the checks and prints one line an exercise; with numbers of lessons or
exercises ("05", "05.2") only theirs, and every mutant that a check let pass.

Tools for mutation (mutmut 3.8, cosmic-ray 8.7, poodle 1.3) change the files of a
package and run its test suite once a mutant, in a new process. Here a function judges
some thousand answers of ten lines, most in a millisecond. Nor do those tools know late
binding, a return inside of the loop, the neighbors of `cpu` or `wait`: what learners
write.
"""

import ast
import contextlib
import copy
import difflib
import io
import re
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from utils import exercises

COMPARE = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPERATE = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
}
# a - b is not b - a
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
NEIGHBORS = {  # of names and of attributes
    "min": ("max",),
    "max": ("min", "sum"),
    "sum": ("max", "len"),
    "len": ("sum",),
    "any": ("all",),
    "all": ("any",),
    "sorted": ("list", "reversed"),
    "round": ("int",),
    "ceil": ("floor",),
    "floor": ("ceil",),
    "append": ("extend",),
    "mean": ("sum", "max"),
    "median": ("mean", "max"),
    "argmax": ("argmin",),
    "cpu": ("numpy", "item", "detach"),
    "item": ("cpu", "detach"),
    "tolist": ("cpu",),
    "detach": ("cpu", "clone"),
    "clone": ("detach",),
    "numel": ("nbytes", "dim"),
    "nbytes": ("numel",),
    "element_size": ("numel",),
    "shape": ("ndim",),
    "view": ("flatten",),
    "reshape": ("view",),
    "split": ("chunk",),
    "cat": ("stack",),
    "stack": ("cat",),
    "zeros": ("ones",),
    "empty_like": ("zeros_like",),
    "device": ("dtype",),
    "type": ("index",),
    "index": ("type",),
    "wait": ("record", "synchronize"),
    "record": ("wait",),
    "wait_stream": ("wait_event", "synchronize"),
    "wait_event": ("wait_stream",),
    "synchronize": ("query",),
    "result": ("done",),
    "no_grad": ("enable_grad",),
    "inference_mode": ("no_grad",),
    "eval": ("train",),
    "train": ("eval",),
    "zero_grad": ("step",),
    "all_reduce": ("broadcast", "barrier"),
    "all_gather": ("all_reduce",),
    "rank": ("world",),
    "startswith": ("endswith",),
    "endswith": ("startswith",),
    "keys": ("values",),
    "values": ("keys",),
    "items": ("values",),
    "lstrip": ("strip",),
    "removeprefix": ("lstrip",),
    "partition": ("rpartition",),
    "rpartition": ("partition",),
    "replace": ("strip",),
    "add_": ("sub_",),
    "copy_": ("add_",),
    "float16": ("bfloat16", "float32"),
    "bfloat16": ("float16", "float32"),
    "float32": ("float64", "float16"),
    "float64": ("float32",),
}


@dataclass(frozen=True)
class Mutant:
    """change: "old lines → new lines", as ast.unparse writes them. source: the whole
    changed answer.
    """

    change: str
    source: str


def mutants(source):
    """All changed versions of an answer's source, each a Mutant; none that says the
    same as another one.
    """
    tree = ast.parse(source)
    original = ast.unparse(tree)
    for node in ast.walk(tree):
        _prepare(node)
    found = {}
    for number, node in enumerate(ast.walk(tree)):
        for k in range(len(list(_changes(node)))):
            changed = copy.deepcopy(tree)
            target = next(n for at, n in enumerate(ast.walk(changed)) if at == number)
            list(_changes(target))[k]()
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text != original and text not in found and _compiles(text):
                found[text] = Mutant(_change(original, text), text)
    return list(found.values())


def _prepare(node):
    """Notes in the tree what a change of one node needs to know about others."""
    if isinstance(node, ast.FunctionDef):  # a parameter is mistaken for the next one
        names = [a.arg for a in node.args.args]
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in names and len(names) > 1:
                inner.mistaken = names[(names.index(inner.id) + 1) % len(names)]
    if isinstance(node, ast.Compare) and isinstance(node.ops[-1], (ast.In, ast.NotIn)):
        node.comparators[-1].unordered = True
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) in (
        "isinstance",
        "min",
        "max",
    ):
        node.unordered = True
        for argument in node.args[1:]:
            argument.unordered = True
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        node.type.unordered = True


def _compiles(text):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # `is` with a literal
            compile(text, "answer", "exec")
    except SyntaxError:  # a dropped line was the only one that its function needed
        return False
    return True


def _change(old, new):
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return " → ".join(
        " | ".join(line[2:].strip() for line in lines if line[0] == sign)
        for sign in "-+"
    )


def _changes(node):
    """The possible changes of this node, each a function that makes it (in place)."""

    def setting(owner, field, value):
        return lambda: setattr(owner, field, value)

    def putting(items, place, value):
        return lambda: items.__setitem__(place, value)

    def dropping(items, place):
        return lambda: items.pop(place)

    def exchanging(items, place):
        return lambda: items.__setitem__(
            slice(place, place + 2), items[place : place + 2][::-1]
        )

    # An expression that a statement or another expression holds: replaced by something
    # next to it.
    for field, value in ast.iter_fields(node):
        inside = value if isinstance(value, list) else [value]
        for place, item in enumerate(inside):
            if isinstance(item, ast.expr):
                for new in _instead(item):
                    yield (
                        putting(value, place, new)
                        if isinstance(value, list)
                        else setting(node, field, new)
                    )

    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for new in COMPARE[type(operator)]:
                yield putting(node.ops, place, new())
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for new in OPERATE.get(type(node.op), ()):
            yield setting(node, "op", new())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ORDERED):
        left, right = node.left, node.right
        yield lambda: (setattr(node, "left", right), setattr(node, "right", left))
    if isinstance(node, ast.BoolOp):
        yield setting(
            node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
        )
        for place in range(len(node.values)):
            yield dropping(node.values, place)
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield setting(node, "test", ast.UnaryOp(ast.Not(), node.test))
        if not isinstance(node, ast.While):
            yield setting(node, "test", ast.Constant(True))
    if isinstance(node, ast.comprehension):
        for place, test in enumerate(node.ifs):
            yield dropping(node.ifs, place)
            yield putting(node.ifs, place, ast.UnaryOp(ast.Not(), test))
    if isinstance(node, ast.Call):
        for place in range(len(node.args)):
            yield dropping(node.args, place)
            if place + 1 < len(node.args) and not hasattr(node, "unordered"):
                yield exchanging(node.args, place)
        for place in range(len(node.keywords)):
            yield dropping(node.keywords, place)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and isinstance(
        getattr(node, "ctx", ast.Load()), ast.Load
    ):
        for place in range(len(node.elts)):
            if not isinstance(node, ast.Tuple):
                yield dropping(node.elts, place)
            if (
                place + 1 < len(node.elts)
                and not isinstance(node, ast.Set)
                and not hasattr(node, "unordered")
            ):
                yield exchanging(node.elts, place)
    if isinstance(node, ast.Dict):
        for place in range(len(node.values) - 1):
            yield exchanging(node.values, place)
    if isinstance(node, ast.Slice):
        for field in ("lower", "upper", "step"):
            yield setting(node, field, None)
    # late binding
    if isinstance(node, (ast.Lambda, ast.FunctionDef)) and node.args.defaults:
        yield setting(node.args, "defaults", [])
        count = len(node.args.defaults)
        if [a.arg for a in node.args.args[-count:]] == [
            getattr(d, "id", None) for d in node.args.defaults
        ]:
            yield lambda: (
                setattr(node.args, "args", node.args.args[:-count]),
                setattr(node.args, "defaults", []),
            )
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield setting(node, "type", ast.Name("Exception", ast.Load()))
    if isinstance(node, (ast.For, ast.While)):
        yield lambda: node.body.append(ast.Break())
    if isinstance(node, (ast.FunctionDef, ast.Module)):
        yield from _returns_early(node)
    for field in ("body", "orelse", "finalbody"):
        lines = getattr(node, field, None)
        for place, line in enumerate(lines if isinstance(lines, list) else ()):
            if isinstance(line, (ast.With, ast.Try)):
                yield lambda lines=lines, place=place, line=line: lines.__setitem__(
                    slice(place, place + 1), line.body
                )
            if isinstance(
                line,
                (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass),
            ):
                continue
            if isinstance(node, ast.Module) or (
                isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
            ):
                continue  # the answer itself, a docstring
            yield (
                dropping(lines, place)
                if len(lines) > 1 or field != "body"
                else putting(lines, place, ast.Pass())
            )


def _instead(item):
    """What an expression is replaced by: its constants off by one, its neighbors, its
    parts.
    """
    if isinstance(item, ast.Constant):
        value = item.value
        if isinstance(value, bool):
            yield ast.Constant(not value)
        elif isinstance(value, int):
            yield ast.Constant(value + 1)
            if value:
                yield ast.Constant(value - 1)
        elif isinstance(value, float):
            yield from (ast.Constant(2 * value + 1), ast.Constant(0.0))
        elif isinstance(value, str):
            yield ast.Constant(value + "x" if value else "x")
        elif value is None:
            yield ast.Constant(0)
    if isinstance(item, ast.UnaryOp):
        yield item.operand
    if isinstance(item, ast.BinOp):
        yield from (item.left, item.right)
    if isinstance(item, ast.IfExp):
        yield item.orelse
    if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
        yield from (ast.Name(new, ast.Load()) for new in NEIGHBORS.get(item.id, ()))
        if hasattr(item, "mistaken"):
            yield ast.Name(item.mistaken, ast.Load())
    if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load):
        yield from (
            ast.Attribute(item.value, new, ast.Load())
            for new in NEIGHBORS.get(item.attr, ())
        )
    if isinstance(item, ast.Call):
        if isinstance(item.func, ast.Attribute):  # x.cpu() → x
            yield item.func.value
        # int(x) → x
        if len(item.args) == 1 and not isinstance(item.args[0], ast.Starred):
            yield item.args[0]


def _returns_early(function):
    """The function's last line, a return, also at the end of each loop's body."""
    last = function.body[-1]
    if isinstance(last, ast.Return):
        for loop in function.body:
            if isinstance(loop, (ast.For, ast.While)):
                yield lambda loop=loop: loop.body.append(last)


def verdict(number, source):
    """What `check` prints for this source, in reader's mode."""
    names = {"torch": torch}
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(source, names)
        except Exception as error:
            return f"✗ {number} the cell raises {type(error).__name__}: {error}"
        exercises.check(number, names[exercises.find_exercise(number).name])
    verdicts = re.findall(
        rf"^[✓✗○] {re.escape(number)} .*", out.getvalue(), re.M | re.S
    )
    return verdicts[-1] if verdicts else out.getvalue()


def judged(number, sample=list):
    """The mutants of one exercise, each with its verdict. sample: a function that picks
    some of them.
    """
    return [
        (mutant, verdict(number, mutant.source))
        for mutant in sample(mutants(exercises.find_exercise(number).solution))
    ]


def alike(text):
    """Whether a verdict calls what was returned and what was expected by the same
    words.
    """
    pair = re.search(
        r"you returned (.+?), (?:but )?(?:expected|it is|it should be) (.+?)(?::|"
        r" \(|\.? *\n|$)",
        text,
    )
    return pair is not None and pair[1] == pair[2]


def report(number):
    """Lines for one exercise, and its counts: mutants, refused, equivalent."""
    exercises.SECONDS = 5
    exercises._remember = lambda number, state: None
    # a package of the site's builder, which no lesson may expect
    sys.modules["tabulate"] = None
    start = time.perf_counter()
    exercise, found = exercises.find_exercise(number), judged(number)
    seconds = time.perf_counter() - start
    known = exercise.equivalent
    passed = [m for m, said in found if said.startswith("✓")]
    missed = [m.change for m in passed if m.change not in known]
    stale = set(known) - {m.change for m in passed}
    same = [said for _, said in found if alike(said)]
    endless = [m.change for m, said in found if "had not ended" in said]
    unclear = [m.change for m, said in found if "cannot be judged" in said]
    equivalent = len(passed) - len(missed)
    lines = [
        f"{number}  {len(found):4} mutants  {len(found) - len(passed):4} refused "
        f" {equivalent:3} equivalent  {len(missed):3} accepted  {seconds:5.1f} s"
    ]
    lines += [f"    accepted: {change}" for change in missed]
    lines += [
        f"    listed as equivalent, but refused or no mutant: {change}"
        for change in sorted(stale)
    ]
    lines += [f"    says the same twice: {said.splitlines()[0]}" for said in same[:3]]
    lines += [f"    refused, but not judged: {change}" for change in unclear]
    lines += [f"    refused, because it never ended: {change}" for change in endless]
    return lines, (
        len(found),
        len(found) - len(passed),
        equivalent,
        len(stale) + len(same),
    )


def main():
    wanted = sys.argv[1:]
    numbers = [
        n
        for n in exercises.all_exercises()
        if not wanted or any(n.startswith(w) for w in wanted)
    ]
    faults, total = [], [0, 0, 0]
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for number, (lines, (count, refused, equivalent, wrong)) in zip(
            numbers, pool.map(report, numbers), strict=True
        ):
            print(*lines, sep="\n", flush=True)
            total = [
                a + b for a, b in zip(total, (count, refused, equivalent), strict=True)
            ]
            if (
                wrong
                or refused < 0.97 * (count - equivalent)
                or equivalent > max(2, 0.2 * count)
            ):
                faults.append(number)
    count, refused, equivalent = total
    print(
        f"{len(numbers)} exercises: {count} mutants, {refused} refused, {equivalent}"
        f" equivalent, {count - refused - equivalent} accepted;"
        f" {time.perf_counter() - start:.0f} s"
    )
    if refused < 0.99 * (count - equivalent) or equivalent > 0.1 * count:
        faults.append("all together")
    if faults:
        sys.exit(f"NOT GOOD ENOUGH: {', '.join(faults)}")


if __name__ == "__main__":
    main()
