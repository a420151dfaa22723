"""Exercises of lesson 13."""

import contextlib
from collections.abc import Generator
from itertools import combinations
from numbers import Real

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)


def _pair(got, shown, meaning):
    got = expect.listed(got)
    if (
        not isinstance(got, (tuple, list))
        or len(got) != 2
        or not all(map(_is_number, got))
    ):
        raise Wrong(
            f"for {shown} you returned {got!r}, expected a pair of numbers: {meaning}"
        )
    return tuple(got)


# ---- 13.1 ----

ABOVE = [  # y, what is to be said
    ([0.5, 3.0, -2.0, 1.5], "1.5 and 3 are above 1"),
    ([[2.0, 1.0], [0.0, 4.0]], "1 is not above 1"),
    ([1.25, 1.75, 2.0], "all are above 1"),
    ([0.0, -5.0], "none is above 1"),
    (7.0, "y may have no dimensions"),
    ([[[2.5]], [[-2.5]]], "-2.5 is not above 1"),
]
CUTS = {  # what a message says of a line that needs numbers
    "item": "item() or an `if`",
    "bool": "item() or an `if`",
    "nonzero": "a selection such as y[y > 1]",
    "masked_select": "a selection such as y[y > 1]",
    "copy out of": "a copy to the host",
}


def check_sum_above(answer):
    for values, why in ABOVE:
        y, shown = torch.tensor(values), f"y = {values}"
        got = call(answer, y, shown=shown)
        if not torch.is_tensor(got) or got.shape != ():
            raise Wrong(
                f"for {shown} you returned {got!r}, expected a tensor without"
                " dimensions"
            )
        expected = y[y > 1].sum()
        if got.dtype != expected.dtype:
            raise Wrong(
                f"for {shown} you returned a {got.dtype}, expected {expected.dtype}"
            )
        expect.close(got.item(), expected.item(), shown, why, rel_tol=1e-5)
        _judge_cut(answer, y, shown)


def _judge_cut(answer, y, shown):
    """On meta there are shapes and no numbers: what needs one raises."""
    try:
        got = call(answer, y.to("meta"), shown=f"{shown} on the device meta")
    except Wrong as error:
        said = str(error)
        why = next((text for word, text in CUTS.items() if word in said), "a line")
        raise Wrong(f"the sum is right, but {why} cuts the graph: {said}") from None
    if not torch.is_tensor(got) or got.device.type != "meta":
        raise Wrong(
            f"the sum is right, but for {shown} on the device meta you returned"
            f" {got!r}: the result must stay on the device of y"
        )


# ---- 13.2 ----


class ToyXLA:
    """The calls of torch_xla that end a step, on a device without numbers. programs:
    what each one held, as text: b for a batch, u for an update.
    """

    def __init__(self):
        self.started, self.recorded, self.programs = False, "", []

    def device(self, index=None):
        self.started = True
        return torch.device("meta")

    def sync(self, wait=False, reset_scope=True):
        if self.recorded:
            self.programs.append(self.recorded)
            self.recorded = ""

    @contextlib.contextmanager
    def step(self):
        self.sync()
        yield
        self.sync()

    def compile(self, f=None, full_graph=False, name=None, max_different_graphs=None):
        # as a decorator, step() begins anew at each call
        return self.step() if f is None else self.step()(f)


def _named(x):
    return f"a {x.dtype} tensor" if torch.is_tensor(x) else repr(x)


def check_run_epoch(answer):
    for count, every in ((6, 2), (3, 3), (4, 1), (12, 4), (0, 2)):
        _judge_epoch(answer, count, every, f"{count} pairs, every={every}")


def _judge_epoch(answer, count, every, shown):
    toy, given = ToyXLA(), []

    def add_up(x, y):
        given.append((x, y))
        toy.recorded += "b"
        return torch.empty((), device="meta")

    def update():
        toy.recorded += "u"

    x, y = torch.ones(4, 2), torch.ones(4, dtype=torch.long)
    loader = [(x.clone(), y.clone()) for _ in range(count)]
    unstarted = Wrong(
        "device() of the torch_xla that your function is given was never called: it"
        " starts the runtime and returns the device"
    )
    try:
        got = call(answer, toy, add_up, update, loader, every, shown=shown)
    except Wrong as error:  # .to("xla"), or an import of the real one
        if "xla" in str(error) and not toy.started:
            raise unstarted from None
        raise
    if isinstance(got, Generator):
        raise Wrong(
            f"for {shown} you returned a generator, which has run nothing yet; expected"
            " a list of losses"
        )
    if count and not toy.started:
        raise unstarted
    _judge_batches(given, count, shown)
    _judge_programs(toy, count, every, shown)
    _judge_losses(got, count, shown)


def _judge_batches(given, count, shown):
    if len(given) != count:
        raise Wrong(
            f"for {shown} add_up was called {len(given)} times, expected {count}: once"
            " for each pair"
        )
    for x, y in given:
        types = [getattr(tensor, "dtype", None) for tensor in (x, y)]
        if types != [torch.float32, torch.long]:
            raise Wrong(
                f"add_up got {_named(x)} and {_named(y)}, expected x and y as in"
                " loader, but moved"
            )
        for name, tensor in (("x", x), ("y", y)):
            if tensor.device.type != "meta":
                raise Wrong(
                    f"{name} was on {tensor.device} in add_up; torch_xla.device()"
                    " returned meta"
                )


def _judge_programs(toy, count, every, shown):
    recorded = "".join(toy.programs) + toy.recorded
    step = "b" * every + "u"
    if recorded != step * (count // every):
        raise Wrong(
            f"for {shown} update() was called {recorded.count('u')} times, in the order"
            f" {recorded!r} (b is a batch, u an update), expected"
            f" {step * (count // every)!r}"
        )
    if count and not toy.programs:
        raise Wrong(
            f"for {shown} all steps are recorded and none has run: end each with a"
            " torch_xla.sync()"
        )
    for program in toy.programs:
        if program.count("u") > 1:
            raise Wrong(
                f"for {shown} one program held {program.count('u')} steps: sync() after"
                " each update()"
            )
    if toy.recorded:
        raise Wrong(
            f"for {shown} the last step is recorded, but has not run: the sync()"
            " belongs behind update()"
        )
    for program in toy.programs:
        if program != step:
            raise Wrong(
                f"for {shown} a program held {program!r} (b is a batch, u an update),"
                f" expected {step!r}: one sync() a step"
            )


def _judge_losses(got, count, shown):
    if isinstance(got, (list, tuple)):
        shapes = [getattr(loss, "shape", None) for loss in got]
        if shapes == [torch.Size()] * count:
            return
    what = repr(got)
    if isinstance(got, (list, tuple, dict)):
        types = ", ".join(sorted({type(item).__name__ for item in got}))
        what = f"a {type(got).__name__} of {len(got)} ({types})"
    raise Wrong(
        f"for {shown} you returned {what}, expected a list of {count} losses, as"
        " add_up returns them"
    )


# ---- 13.3 ----

# steps, every
LOOPS = [(20, 1), (20, 10), (7, 3), (8, 3), (5, 10), (6, 6), (0, 5), (100, 25)]


def check_programs(answer):
    for steps, every in LOOPS:
        reads = steps // every
        for place in ("before backward", "after sync", "before sync"):
            shown = f"steps={steps}, every={every}, {place!r}"
            got = call(answer, steps, every, place, shown=shown)
            got = _pair(got, shown, "programs run, numbers copied")
            expected = (steps, reads)
            if place != "after sync":
                expected = (steps + reads, reads)
            why = "each step is one program"
            if got == expected[::-1]:
                why = "the programs come first, then the numbers copied"
            elif got[1] != reads:
                why = (
                    f"a number is read {reads} times, and each time one number is"
                    " copied"
                )
            elif place == "before sync":
                why = (
                    "before the sync the loss is only recorded, too: its forward pass"
                    f" runs for the number, and again in the step: {steps} + {reads}"
                    " programs"
                )
            elif place == "before backward":
                why = (
                    "before backward the forward pass runs once for the number, and"
                    f" again as a part of the step: {steps} + {reads} programs"
                )
            elif got[0] == steps + reads:
                why = (
                    "after the sync the loss is computed already, reading it runs"
                    " nothing"
                )
            expect.equal(got, expected, shown, why)


# ---- 13.4 ----

ANSWERS = {  # and the reason, where it is not about the versions
    "not installed": "xla_version is None, and this comes first",
    "mismatch": "",
    "no runtime": "the releases match, but runtime is None: none has started",
    "no TPU": "the releases match and a runtime has started, but no TPU is behind it",
    "TPU": "the releases match, and the runtime is a TPU's",
}
STATES = [  # torch, torch_xla, runtime, expected, what is to be said of the versions
    ("2.13.0", None, None, "not installed", "there is no torch_xla to compare with"),
    (
        "2.9.0+cpu",
        "2.9.0",
        "CPU",
        "no TPU",
        "what stands behind the + says how torch was built",
    ),
    ("2.9.0", "2.9.0", "TPU", "TPU", "they are equal"),
    (
        "2.9.1",
        "2.9.0",
        "TPU",
        "TPU",
        "2.9.1 and 2.9.0 are the same release; the third number is a repair of it",
    ),
    (
        "2.9.0",
        "2.9.1+libtpu",
        "TPU",
        "TPU",
        "2.9.0 and 2.9.1 are the same release, whatever stands behind",
    ),
    ("2.9.0", "2.9.0", "NEURON", "no TPU", "they are equal"),
    ("2.9.0", "2.9.0", None, "no runtime", "they are equal"),
    ("2.10.1+cpu", "2.10.0", "TPU", "TPU", "both are release 2.10"),
]
MISMATCHES = [  # torch, torch_xla, what is to be said of them; no runtime
    ("2.11.0+cu128", "2.9.0", "2.11 is not 2.9, so the import would fail"),
    ("2.8.0", "2.9.0", "2.8 is not 2.9, so the import would fail"),
    ("2.1.0", "2.10.0", "2.1 is not 2.10: compare numbers, not the first letters"),
    ("2.10.0", "2.1.0", "2.10 is not 2.1: compare numbers, not the first letters"),
    ("3.9.0", "2.9.0", "both numbers count, also the first"),
    ("2.3.0", "3.2.0", "2.3 is not 3.2: their order counts"),
    ("21.1.0", "2.11.0", "21.1 is not 2.11: compare number by number"),
    ("12.9.0", "2.9.0", "12.9 is not 2.9: compare numbers, not letters"),
    ("12.1.0", "12.10.0", "12.1 is not 12.10: a number may have any number of digits"),
]
VERSIONS_FIRST = (
    "2.13.0",
    "2.9.0",
    "TPU",
    "mismatch",
    "the versions come first: what the runtime of such a pair says is worth nothing",
)


def check_state(answer):
    mismatches = [(*pair, None, "mismatch", why) for *pair, why in MISMATCHES]
    states = [*STATES, *mismatches, VERSIONS_FIRST]
    for torch_version, xla_version, runtime, expected, versions in states:
        shown = (
            f"torch {torch_version!r}, torch_xla {xla_version!r}, runtime {runtime!r}"
        )
        got = call(answer, torch_version, xla_version, runtime, shown=shown)
        if not isinstance(got, str) or got not in ANSWERS:
            texts = ", ".join(map(repr, ANSWERS))
            raise Wrong(f"for {shown} you returned {got!r}, expected one of {texts}")
        why = versions if "mismatch" in (got, expected) else ANSWERS[expected]
        expect.equal(got, expected, shown, why)


# ---- 13.5 ----

CONSTANTS = [
    (
        [2.0, 3.0, 0.5, -4.0],
        1,
        "ordinary numbers are inputs of one and the same program",
    ),
    (
        [2.0, 1.0, 3.0, 1.0],
        2,
        "1 is baked in, and its program is kept for the second 1",
    ),
    ([0.0, 1.0, -1.0], 3, "0, 1 and -1 have a program each"),
    ([2.0, 0.0], 2, "0 is baked in, 2 is an input"),
    ([-1.0, 2.0], 2, "-1 is baked in, as 1 is"),
    (
        [-2.0, -3.0, -1.0],
        2,
        "-1 is baked in, as 1 is; other negative numbers are inputs",
    ),
    (
        [2.0, 0.5, 1.0, 0.0, -1.0, 7.0],
        4,
        "three numbers are baked in, the others share one program",
    ),
    ([0, 0.0, 1, 1.0], 2, "0 and 0.0 are equal, and no ordinary number is among them"),
    ([2, 3.0, -4], 1, "an int and a float are inputs of the same program"),
    ([1.0], 1, "one number, one program"),
    ([5, 5, 5], 1, "the second time the program is in the cache"),
    (
        [0.999, 1.001, 1e-9, -0.999],
        1,
        "only 0, 1 and -1 themselves are baked in, not what is near them",
    ),
    ([0.2, 0.3, 0.4, 0.5, 0.6], 1, "a schedule without 0, 1 and -1 needs one program"),
    ([], 0, "a loop that does nothing compiles nothing"),
]


def check_compilations(answer):
    for values, expected, why in CONSTANTS:
        got = call(answer, values)
        if not _is_number(got):
            raise Wrong(
                f"for {values} you returned {got!r}, expected a number of programs"
            )
        expect.equal(got, expected, values, why)


# ---- 13.6 ----

BUCKETS = [
    ([100, 110, 120], 1.25),
    ([100, 120, 125], 1.25),
    ([100, 126], 1.25),
    ([10, 20, 40, 80], 2),
    ([7], 1.5),
    ([5, 9, 9, 5], 1),
    ([12, 12, 12], 3),
    ([64, 30, 31, 33, 60, 17, 16, 15], 2),
    ([10, 11, 15, 16, 22], 1.5),
    ([1, 3, 4, 6, 9, 13, 20, 28, 41], 1.4),
    ([1, 100], 100),
]


def _covers(found, lengths, most):
    return all(any(n <= bucket <= most * n + 1e-9 for bucket in found) for n in lengths)


def _fewest(lengths, most):
    """The smallest number of buckets. Those that end at a length are enough: a larger
    one lets the lengths grow more.
    """
    distinct = sorted(set(lengths))
    for count in range(1, len(distinct) + 1):
        for found in combinations(distinct, count):
            if _covers(found, distinct, most):
                return count


def check_buckets(answer):
    for lengths, most in BUCKETS:
        shown = f"lengths {lengths}, most {most}"
        got = expect.listed(call(answer, lengths, most, shown=shown))
        said = f"for {shown} you returned {got!r}"
        if not isinstance(got, (list, tuple)) or not all(map(_is_number, got)):
            raise Wrong(f"{said}, expected a list of numbers")
        got = list(got)
        if not all(float(bucket).is_integer() for bucket in got):
            raise Wrong(f"{said}: a bucket is a whole number of rows")
        if got != sorted(set(got)):
            raise Wrong(f"{said}: sort the buckets, and name each once")
        for n in lengths:
            bucket = next((b for b in got if b >= n), None)
            if bucket is None:
                raise Wrong(f"{said}: no bucket holds the length {n}")
            if bucket > most * n + 1e-9:
                raise Wrong(f"{said}: {n} grows to {bucket}, more than {most} times")
        fewest = _fewest(lengths, most)
        if len(got) > fewest:
            enough = "1 is enough" if fewest == 1 else f"{fewest} are enough"
            why = ". Begin with the longest"
            if max(lengths) == most * min(lengths):
                why = f": {max(lengths)} is {most} times {min(lengths)}, no more"
            raise Wrong(f"{said}, {len(got)} buckets; {enough}{why}")


EXERCISES = [
    Exercise(
        number="13.1",
        title="A sum without a cut",
        name="sum_above",
        stars=1,
        check=check_sum_above,
        hints=[
            "y[y > 1] has a shape that depends on values. What has the shape of y?",
            "Put 0 where y is not above 1, and sum all.",
            "y > 1 has the shape of y, and in a product True is 1 and False is 0.",
        ],
        solution="""
def sum_above(y):
    return (y * (y > 1)).sum()
""",
        praise=(
            "Each shape is known before any number. That is enough on XLA. A device"
            " that lacks an operation cuts all the same: PyTorch's own has no"
            " `torch.where` (section 9), and there (y * (y > 1)).sum() does not cut."
        ),
    ),
    Exercise(
        number="13.2",
        title="A step from several batches",
        name="run_epoch",
        stars=1,
        check=check_run_epoch,
        hints=[
            (
                "torch_xla.device() once, before the loop: it starts the runtime and"
                " says where the tensors go."
            ),
            (
                "A step is `every` batches and one update(). torch_xla.sync() ends it,"
                " once a step."
            ),
            (
                "for k, (x, y) in enumerate(loader, 1): … and, if k % every == 0,"
                " update(), then torch_xla.sync()."
            ),
        ],
        solution="""
def run_epoch(torch_xla, add_up, update, loader, every):
    device, losses = torch_xla.device(), []
    for k, (x, y) in enumerate(loader, 1):
        losses.append(add_up(x.to(device), y.to(device)))
        if k % every == 0:
            update()
            torch_xla.sync()
    return losses
""",
        praise=(
            "With `import torch_xla` the same lines train on a TPU. A sync() after each"
            " batch would train the same weights, but in more programs a step, which"
            " hand the gradients from one to the next."
        ),
    ),
    Exercise(
        number="13.3",
        title="What a number costs",
        name="programs_and_copies",
        stars=2,
        check=check_programs,
        hints=[
            "Without any reading, each step is one program. How many steps read?",
            "steps // every of them, and each copies one number.",
            (
                "Before the sync, wherever, each reading adds a program for the forward"
                " pass. After the sync it adds none."
            ),
        ],
        solution="""
def programs_and_copies(steps, every, place):
    reads = steps // every
    return steps + (0 if place == "after sync" else reads), reads
""",
        praise=(
            "The counts do not show the third cost: at each copy the host waits until"
            " the device is done. A list of losses that stays on the device has none of"
            " the three."
        ),
    ),
    Exercise(
        number="13.4",
        title="What is wrong?",
        name="state",
        stars=1,
        check=check_state,
        hints=[
            (
                "Ask in the order in which things can fail: package, versions, runtime,"
                " device."
            ),
            "A release is the first two numbers: version.split('.')[:2].",
            (
                "`'2.10.0'.startswith('2.1')` is True, and 2.10 is not 2.1: compare the"
                " lists."
            ),
        ],
        solution="""
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    if runtime is None:
        return "no runtime"
    return "TPU" if runtime == "TPU" else "no TPU"
""",
        praise=(
            "Such a function belongs at the top of a program for TPUs: one clear line"
            " in place of a mangled symbol."
        ),
    ),
    Exercise(
        number="13.5",
        title="Numbers in the graph",
        name="compilations",
        stars=2,
        check=check_compilations,
        hints=[
            "Which numbers are inputs of a program, and which are baked in?",
            "0, 1 and -1 have a program each. All others share one.",
            (
                "Give each value a name, the same for all ordinary ones, and count the"
                " different names."
            ),
        ],
        solution="""
def compilations(values):
    return len({v if v in (0, 1, -1) else None for v in values})
""",
        praise=(
            "A warm-up that begins at 0 and ends at 1 compiles three programs, and the"
            " last one in the middle of a run. As a tensor on the device, the factor"
            " costs none."
        ),
    ),
    Exercise(
        number="13.6",
        title="The fewest buckets",
        name="buckets",
        stars=2,
        check=check_buckets,
        hints=[
            (
                "The longest length needs a bucket of at least its size. Does a larger"
                " one ever help?"
            ),
            (
                "A bucket of size n serves all lengths from n / most to n. Which length"
                " is the first too short for it?"
            ),
            (
                "Go from the longest to the shortest; open a new bucket where length *"
                " most < last bucket."
            ),
        ],
        solution="""
def buckets(lengths, most):
    chosen = []
    for n in sorted(lengths, reverse=True):
        if not chosen or n * most < chosen[-1]:
            chosen.append(n)
    return chosen[::-1]
""",
        praise=(
            "From either end each bucket is forced: from the longest it is as small as"
            " it may be, from the shortest as large. For lengths from 1 to n at"
            " most about log(n) / log(most) buckets are needed, which is why powers of"
            " two do so well."
        ),
    ),
]
