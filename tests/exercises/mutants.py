"""Wrong answers to the exercises, derived from each solution by one change to its
syntax tree.

`python -m tests.exercises.mutants` gives all of them to the checks and prints one line
an exercise, and every mutant that a check let pass; with numbers of lessons or
exercises ("05", "05.2") only theirs.

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
import functools
import io
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from course import exercises
from course.answers import state
from tests.exercises.answers import all_answers

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
ENDLESS = re.compile("is still running")
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
    changed answer. habit: whether the change shows in some calls only; the source then
    appends to `done` where it does.
    """

    change: str
    source: str
    habit: bool = False


def mutants(source):
    """All changed versions of an answer's source, each a Mutant; none that says the
    same as another one.
    """
    tree = ast.parse(source)
    original = ast.unparse(tree)
    notes = Notes(_next_parameters(tree), _unordered(tree))
    found = {}
    for node in list(ast.walk(tree)):
        for change in _changes(node, notes):
            text = _unparsed_with(tree, node, change)
            if text != original and text not in found and _compiles(text):
                found[text] = Mutant(_change(original, text), text)
    return [*found.values(), *_globals(tree)]


@dataclass(frozen=True)
class Notes:
    """What a change of one node needs to know about others.

    next_parameter: name that uses a parameter → the parameter that it is mistaken for.
    unordered: nodes the order of whose parts says nothing.
    """

    next_parameter: dict
    unordered: set


def _next_parameters(tree):
    found = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [parameter.arg for parameter in function.args.args]
        if len(names) < 2:
            continue
        following = dict(zip(names, names[1:] + names[:1], strict=True))
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in following:
                found[node] = following[node.id]
    return found


def _unordered(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if isinstance(node.ops[-1], (ast.In, ast.NotIn)):
                found.add(node.comparators[-1])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "min", "max"):
                found.update([node, *node.args[1:]])
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            found.add(node.type)
    return found


def _unparsed_with(tree, node, change):
    """The tree as text, with the fields of one node as `change` says."""
    before = {field: getattr(node, field) for field in change}
    for field, value in change.items():
        setattr(node, field, value)
    text = ast.unparse(tree)
    for field, value in before.items():
        setattr(node, field, value)
    return text


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


# --------------------------------------------------------------------------------------
# Bad habits of an answer whose result is right

HABIT = """
{source}

_right, _kept = {name}, {{}}


def _spoil(value, deep):
    if isinstance(value, dict):
        inside = list(value.values())
    else:
        inside = list(value) if isinstance(value, (list, tuple)) else []
    if isinstance(value, torch.nn.Module):
        return
    if deep and inside:
        for item in inside:
            _spoil(item, deep)
    elif isinstance(value, torch.Tensor) and value.numel():
        with torch.no_grad():
            value.copy_(value == 0)
        done.append(value)
    elif isinstance(value, (list, dict, set)) and value:
        value.clear()
        done.append(value)


@functools.wraps(_right)
def {name}(*args):
{habit}
"""
HABITS = {
    "clears {parameter}": """
    result = _right(*args)
    _spoil(args[{place}], deep=False)
    return result
""",
    "changes what is in {parameter}": """
    result = _right(*args)
    _spoil(args[{place}], deep=True)
    return result
""",
    "changes {parameter} before it is used": """
    _spoil(args[{place}], deep=True)
    return _right(*args)
""",
    "reads a global {parameter}, that of the first call": """
    if len(args) > {place}:
        first, text = _kept.setdefault(0, (args[{place}], state(args[{place}])))
        if state(args[{place}]) != text:
            done.append(first)
        args = *args[:{place}], first, *args[{place + 1}:]
    return _right(*args)
""",
    "moves {parameter} to the CPU": """
    value = args[{place}] if len(args) > {place} else None
    if isinstance(value, torch.Tensor) and type(value) is not torch.nn.Parameter:
        done.append(value)
        args = *args[:{place}], value.cpu(), *args[{place + 1}:]
    return _right(*args)
""",
    "takes this machine's device for {parameter}": """
    value = args[{place}] if len(args) > {place} else None
    if isinstance(value, torch.device):
        done.append(value)
        args = *args[:{place}], torch.get_default_device(), *args[{place + 1}:]
    return _right(*args)
""",
}


def habits(source, name):
    """The answer with bad habits, each a Mutant: it changes what belongs to the caller,
    reads a global in place of a parameter, depends on this machine's device.
    """
    functions = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    if not functions:  # a class, or what makes a function
        return []
    found = []
    for place, parameter in enumerate(functions[0].args.args):
        for change, habit in HABITS.items():
            habit = habit.replace("{place + 1}", str(place + 1))
            habit = habit.replace("{place}", str(place)).strip("\n")
            text = HABIT.format(source=source, name=name, habit=habit)
            change = change.format(parameter=parameter.arg)
            found.append(Mutant(change, text, habit=True))
    return found


def _globals(tree):
    """What a function fills is made once, outside of it: right only the first time."""
    for function in tree.body:
        for place, line in enumerate(getattr(function, "body", [])):
            is_new = isinstance(line, ast.Assign) and (
                isinstance(line.value, (ast.List, ast.Dict, ast.Set))
                or isinstance(line.value, ast.Call)
                and getattr(line.value.func, "id", "") in ("list", "dict", "set")
                and not line.value.args
            )
            if isinstance(function, ast.FunctionDef) and is_new:
                outside = copy.copy(function)
                outside.body = _put(function.body, place) or [ast.Pass()]
                where = tree.body.index(function)
                body = _put(tree.body, where, line, outside)
                text = ast.unparse(ast.Module(body, []))
                # what is made of other names cannot be made outside
                if not any(
                    isinstance(x, ast.Name)
                    and isinstance(x.ctx, ast.Load)
                    and x.id not in ("list", "dict", "set")
                    for x in ast.walk(line.value)
                ):
                    yield Mutant(f"a global: {ast.unparse(line)}", text)


# --------------------------------------------------------------------------------------
# The changes of a node. Each is a dict: field of the node → its new value.


def _changes(node, notes):
    """All changes of this node; those of its parts are theirs."""
    changes = [
        *_expressions(node, notes),
        *_operators(node),
        *_conditions(node),
        *_arguments(node, notes),
        *_elements(node, notes),
        *_defaults(node),
    ]
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        changes.append({"type": ast.Name("Exception", ast.Load())})
    return [*changes, *_loops(node), *_statements(node)]


def _put(items, place, *new):
    """A copy of the list with `new` in place of one item."""
    return [*items[:place], *new, *items[place + 1 :]]


def _exchanged(items, place):
    """A copy of the list in which an item has changed places with the next one."""
    return [*items[:place], items[place + 1], items[place], *items[place + 2 :]]


def _expressions(node, notes):
    """An expression that this node holds is replaced by something next to it."""
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            for new in _instead(value, notes):
                yield {field: new}
        elif isinstance(value, list):
            for place, item in enumerate(value):
                for new in _instead(item, notes):
                    yield {field: _put(value, place, new)}


def _instead(item, notes):
    """What an expression is replaced by: a constant off by one, a neighbor, a part of
    it.
    """
    if isinstance(item, ast.Constant):
        yield from map(ast.Constant, _other_values(item.value))
    if isinstance(item, ast.UnaryOp):
        yield item.operand
    if isinstance(item, ast.BinOp):
        yield item.left
        yield item.right
    if isinstance(item, ast.IfExp):
        yield item.orelse
    if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load):
        yield from _neighbors(item, notes)
    if isinstance(item, ast.Call):
        yield from _inside(item)


def _neighbors(item, notes):
    """Other names than that of a variable or an attribute."""
    if isinstance(item, ast.Attribute):
        for name in NEIGHBORS.get(item.attr, ()):
            yield ast.Attribute(item.value, name, ast.Load())
        return
    for name in NEIGHBORS.get(item.id, ()):
        yield ast.Name(name, ast.Load())
    if item in notes.next_parameter:
        yield ast.Name(notes.next_parameter[item], ast.Load())


def _inside(call):
    """What a call is made of: x.cpu() → x, int(x) → x."""
    if isinstance(call.func, ast.Attribute):
        yield call.func.value
    if len(call.args) == 1 and not isinstance(call.args[0], ast.Starred):
        yield call.args[0]


def _other_values(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1] if value else [1]
    if isinstance(value, float):
        return [2 * value + 1, 0.0]
    if isinstance(value, str):
        return [value + "x"]
    return [0] if value is None else []


def _operators(node):
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for new in COMPARE[type(operator)]:
                yield {"ops": _put(node.ops, place, new())}
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for new in OPERATE.get(type(node.op), ()):
            yield {"op": new()}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ORDERED):
        yield {"left": node.right, "right": node.left}
    if isinstance(node, ast.BoolOp):
        yield {"op": ast.Or() if isinstance(node.op, ast.And) else ast.And()}
        for place in range(len(node.values)):
            yield {"values": _put(node.values, place)}


def _conditions(node):
    """A condition is negated, or left out."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield {"test": ast.UnaryOp(ast.Not(), node.test)}
        if not isinstance(node, ast.While):
            yield {"test": ast.Constant(True)}
    if isinstance(node, ast.comprehension):
        for place, test in enumerate(node.ifs):
            yield {"ifs": _put(node.ifs, place)}
            yield {"ifs": _put(node.ifs, place, ast.UnaryOp(ast.Not(), test))}


def _arguments(node, notes):
    """An argument of a call is left out, or exchanged with the next one."""
    if not isinstance(node, ast.Call):
        return
    for place in range(len(node.args)):
        yield {"args": _put(node.args, place)}
        if place + 1 < len(node.args) and node not in notes.unordered:
            yield {"args": _exchanged(node.args, place)}
    for place in range(len(node.keywords)):
        yield {"keywords": _put(node.keywords, place)}


def _elements(node, notes):
    """An element is left out, or exchanged with the next one; a slice loses a bound."""
    is_read = isinstance(getattr(node, "ctx", None), ast.Load)
    if isinstance(node, ast.Set) or (
        isinstance(node, (ast.Tuple, ast.List)) and is_read
    ):
        has_order = not isinstance(node, ast.Set) and node not in notes.unordered
        for place in range(len(node.elts)):
            if not isinstance(node, ast.Tuple):
                yield {"elts": _put(node.elts, place)}
            if has_order and place + 1 < len(node.elts):
                yield {"elts": _exchanged(node.elts, place)}
    if isinstance(node, ast.Dict):
        for place in range(len(node.values) - 1):
            yield {"values": _exchanged(node.values, place)}
    if isinstance(node, ast.Slice):
        for field in ("lower", "upper", "step"):
            yield {field: None}


def _defaults(node):
    """Late binding: parameters lose their defaults, and go where they are named like
    them (n=n).
    """
    if isinstance(node, (ast.Lambda, ast.FunctionDef)) and node.args.defaults:
        without = copy.copy(node.args)
        without.defaults = []
        yield {"args": without}
        count = len(node.args.defaults)
        names = [parameter.arg for parameter in node.args.args[-count:]]
        if names == [getattr(value, "id", None) for value in node.args.defaults]:
            fewer = copy.copy(without)
            fewer.args = node.args.args[:-count]
            yield {"args": fewer}


def _loops(node):
    """A loop ends after its first round: by a break, or by the return that stands
    behind it.
    """
    if isinstance(node, (ast.For, ast.While)):
        yield {"body": [*node.body, ast.Break()]}
    if isinstance(node, (ast.FunctionDef, ast.Module)):
        last = node.body[-1]
        for place, line in enumerate(node.body):
            if isinstance(line, (ast.For, ast.While)) and isinstance(last, ast.Return):
                loop = copy.copy(line)
                loop.body = [*line.body, last]
                yield {"body": _put(node.body, place, loop)}


# What is not dropped: without it nothing runs at all.
KEPT = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)


def _statements(node):
    """A statement is dropped; the body of a with or try stands alone."""
    for field in ("body", "orelse", "finalbody"):
        lines = getattr(node, field, None)
        if not isinstance(lines, list):  # a lambda's body is an expression
            continue
        for place, line in enumerate(lines):
            if isinstance(line, (ast.With, ast.Try)):
                yield {field: _put(lines, place, *line.body)}
            is_docstring = isinstance(line, ast.Expr) and isinstance(
                line.value, ast.Constant
            )
            # what stands in no function is the answer itself
            if isinstance(line, KEPT) or isinstance(node, ast.Module) or is_docstring:
                continue
            if field == "body" and len(lines) == 1:
                yield {field: [ast.Pass()]}
            else:
                yield {field: _put(lines, place)}


# --------------------------------------------------------------------------------------
# Their verdicts


def verdict(number, source, done=None):
    """What `check` prints for this source, in reader's mode."""
    names = {"torch": torch}
    if done is not None:
        names |= {"done": done, "functools": functools, "state": state}
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


def judged(number):
    """The mutants of one exercise, each with its verdict."""
    exercise, found = exercises.find_exercise(number), []
    for mutant in [
        *mutants(exercise.solution),
        *habits(exercise.solution, exercise.name),
    ]:
        done = [] if mutant.habit else None
        said = verdict(number, mutant.source, done)
        if done != []:  # else it did what the solution does
            found.append((mutant, said))
    return found


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


@contextlib.contextmanager
def elsewhere():
    """Another current folder: a mutant may write "latest" for home / "latest"."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def report(number):
    """What is to be printed of one exercise, as lines, and a Counter of its mutants."""
    exercises.SECONDS = 20  # many of the mutants never end
    exercises._remember = lambda number, state: None
    # a package of the site's builder, which no lesson may expect
    sys.modules["tabulate"] = None
    start = time.perf_counter()
    with elsewhere():
        found = judged(number)
    seconds = time.perf_counter() - start
    known = all_answers()[number].equivalent
    passed = [mutant.change for mutant, said in found if said.startswith("✓")]
    missed = [change for change in passed if change not in known]
    stale = sorted(set(known) - set(passed))
    same = [said.splitlines()[0] for _, said in found if alike(said)]
    unclear = [mutant.change for mutant, said in found if "cannot be judged" in said]
    endless = [mutant.change for mutant, said in found if ENDLESS.search(said)]
    count = Counter(
        mutants=len(found),
        refused=len(found) - len(passed),
        equivalent=len(passed) - len(missed),
        accepted=len(missed),
    )
    lines = [
        f"{number}  {count['mutants']:4} mutants  {count['refused']:4} refused "
        f" {count['equivalent']:3} equivalent  {count['accepted']:3} accepted "
        f" {seconds:5.1f} s"
    ]
    for what, those in (
        ("accepted", missed),
        ("listed as equivalent, but refused or no mutant", stale),
        ("says the same twice", same[:3]),
        ("refused, but not judged", unclear),
        ("refused, because it never ended", endless),
    ):
        lines += [f"    {what}: {text}" for text in those]
    return lines, count


def main():
    wanted = tuple(sys.argv[1:]) or ("",)
    numbers = [n for n in exercises.all_exercises() if n.startswith(wanted)]
    if not numbers:
        sys.exit(f"there is no exercise {' '.join(wanted)}")
    total, start = Counter(), time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for lines, count in pool.map(report, numbers):
            print(*lines, sep="\n", flush=True)
            total += count
    print(
        f"{len(numbers)} exercises: {total['mutants']} mutants, {total['refused']}"
        f" refused, {total['equivalent']} equivalent, {total['accepted']} accepted;"
        f" {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
