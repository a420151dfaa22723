"""Exercises of lesson 13."""

import ast
from collections.abc import Generator
from itertools import combinations

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.toy_xla import ToyXLA


def cases(table):
    """The cells of a table, line by line: values of Python, and at the end a text."""
    for line in table.strip().splitlines():
        *values, text = line.split(" | ")
        yield *map(ast.literal_eval, values), text


ABOVE = """
[0.5, 3.0, -2.0, 1.5] | 1.5 and 3 are above 1
[[2.0, 1.0], [0.0, 4.0]] | 1 is not above 1
[1.25, 1.75, 2.0] | all are above 1
[0.0, -5.0] | none is above 1
7.0 | y may have no dimensions
[[[2.5]], [[-2.5]]] | -2.5 is not above 1
"""
CUTS = {  # what a message says of a line that needs numbers
    "item": "item() or an `if`",
    "bool": "item() or an `if`",
    "nonzero": "a selection such as y[y > 1]",
    "masked_select": "a selection such as y[y > 1]",
    "": "a line",
}


def check_sum_above(answer):
    for values, why in cases(ABOVE):
        y, shown = torch.tensor(values), f"y = {values}"
        got = call(answer, y, shown=shown)
        if getattr(got, "shape", None) != ():
            asked = "a tensor without dimensions"
            raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
        expect.tensor(got, y[y > 1].sum(), shown, why)
        # on meta there are shapes and no numbers: what needs one raises
        shown = f"{shown} on the device meta"
        try:
            got = call(answer, y.to("meta"), shown=shown)
        except Wrong as error:
            said = str(error)
            why = next(text for word, text in CUTS.items() if word in said)
            raise Wrong(f"the sum is right, but {why} cuts the graph: {said}") from None
        if got.device.type != "meta":
            raise Wrong(
                f"the sum is right, but for {shown} you returned {got!r}: the result"
                " must stay on the device of y"
            )


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
    if count and not toy.started and not isinstance(got, Generator):
        raise unstarted
    asked = f"a list of {count} losses, as add_up returns them"
    if len(expect.instance(got, (list, tuple), shown, asked)) != count or not all(
        torch.is_tensor(loss) and loss.shape == () for loss in got
    ):
        kinds = ", ".join(sorted({type(loss).__name__ for loss in got}))
        what = f"a {type(got).__name__} of {len(got)} ({kinds})"
        raise Wrong(f"for {shown} you returned {what}, expected {asked}")
    for pair in given:
        for name, mine, theirs in zip("xy", pair, (x, y), strict=True):
            place = [mine.dtype, mine.device.type] if torch.is_tensor(mine) else mine
            asked = [theirs.dtype, "meta"]
            if place != asked:
                raise Wrong(
                    f"{name} was {place} in add_up, expected {asked}: move both to what"
                    " torch_xla.device() returned"
                )
    _judge_programs(toy, count // every, every, shown)


def _judge_programs(toy, steps, every, shown):
    step = "b" * every + "u"
    recorded = "".join(toy.programs) + toy.recorded
    said = "you recorded (b is a batch, u an update)"
    expect.equal(recorded, step * steps, shown, said=said)
    if toy.recorded:
        why = "end each step with a sync()" if not toy.programs else "and sync() last"
        raise Wrong(f"for {shown} {toy.recorded!r} is recorded, but has not run: {why}")
    said = "the programs held (b is a batch, u an update)"
    why = "one sync() a step, after its update()"
    expect.equal(toy.programs, [step] * steps, shown, why, said=said)


# steps, every
LOOPS = [(20, 1), (20, 10), (7, 3), (8, 3), (5, 10), (6, 6), (0, 5), (100, 25)]
FORWARD_TWICE = {  # why a reading at this place adds a program
    "before backward": "before backward the forward pass runs once for the number, and"
    " again as a part of the step",
    "before sync": "before the sync the loss is only recorded, too: its forward pass"
    " runs for the number, and again in the step",
}


def check_programs(answer):
    for steps, every in LOOPS:
        reads = steps // every
        for place in ("before backward", "after sync", "before sync"):
            shown = f"steps={steps}, every={every}, {place!r}"
            asked = "a pair of numbers: programs run, numbers copied"
            got = expect.listed(call(answer, steps, every, place, shown=shown))
            got = expect.numbers(got, 2, shown, asked)
            expected, why = [steps, reads], "after the sync reading it runs nothing"
            if place in FORWARD_TWICE:
                expected = [steps + reads, reads]
                why = f"{FORWARD_TWICE[place]}: {steps} + {reads} programs"
            if got[1] != reads:
                why = f"a number is read {reads} times, and each time one is copied"
            if got == expected[::-1]:
                why = "the programs come first, then the numbers copied"
            expect.equal(got, expected, shown, why)


VERDICTS = ("compiles", "cut", "steady")
# compiled, run, expected, why
LOGS = """
[1, 2, 2, 2, 2, 2] | [1, 2, 3, 4, 5, 6] | "steady" | two in the warm-up, then no new one
[9, 9, 9, 9, 9] | [40, 41, 42, 43, 44] | "steady" | the counters began above 0
[4, 5, 5, 5, 5] | [8, 9, 10, 11, 12] | "steady" | the counters began above 0
[0, 0, 0, 0, 0] | [1, 2, 3, 4, 5] | "steady" | all programs were known from before
[1, 2, 3, 4, 5, 6] | [1, 2, 3, 4, 5, 6] | "compiles" | each step compiles
[2, 3, 3, 3, 3] | [2, 4, 6, 8, 10] | "cut" | nothing new, but two programs a step
[1, 2, 3, 3, 3] | [1, 2, 3, 4, 5] | "steady" | the third step is warm-up, too
[1, 2, 2, 3, 3] | [1, 2, 3, 4, 5] | "compiles" | look at all steps from the fourth on
[1, 2, 2, 2, 2, 3] | [1, 2, 3, 4, 5, 6] | "compiles" | the last batch is smaller
[2, 3, 3, 3, 3] | [3, 5, 6, 7, 8] | "steady" | two programs in the warm-up do not count
[3, 3, 3, 3, 3, 3] | [1, 2, 3, 4, 6, 7] | "cut" | step 5 alone reads a value
[2, 2, 2, 2, 2, 2, 2] | [0, 1, 1, 3, 3, 5, 5] | "cut" | some steps run none, some two
[1, 2, 2, 2, 2, 2] | [0, 1, 1, 2, 2, 3] | "steady" | a step of two batches, one program
[2, 4, 6, 8, 10] | [2, 4, 6, 8, 10] | "compiles" | both are wrong: compiling comes first
"""


def check_verdict(answer):
    for compiled, run, expected, why in cases(LOGS):
        shown = f"compiled={compiled}, run={run}"
        got = call(answer, compiled, run, shown=shown)
        if not isinstance(got, str) or got not in VERDICTS:
            raise Wrong(f"for {shown} you returned {got!r}, expected one of {VERDICTS}")
        expect.equal(got, expected, shown, why)


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


def _fewest(lengths, most):
    """The smallest number of buckets. Those that end at a length are enough: a larger
    one lets the lengths grow more.
    """
    for count in range(1, len(lengths) + 1):
        for found in combinations(sorted(set(lengths)), count):
            if all(any(n <= b <= most * n + 1e-9 for b in found) for n in lengths):
                return count


def check_buckets(answer):
    for lengths, most in BUCKETS:
        shown = f"lengths {lengths}, most {most}"
        got = expect.listed(call(answer, lengths, most, shown=shown))
        said = f"for {shown} you returned {got!r}"
        if not isinstance(got, (list, tuple)) or not all(map(expect.is_number, got)):
            raise Wrong(f"{said}, expected a list of numbers")
        if not all(float(bucket).is_integer() for bucket in got):
            raise Wrong(f"{said}: a bucket is a whole number of rows")
        if list(got) != sorted(set(got)):
            raise Wrong(f"{said}: sort the buckets, and name each once")
        for n in lengths:
            bucket = next((b for b in got if b >= n), None)
            if bucket is None:
                raise Wrong(f"{said}: no bucket holds the length {n}")
            if bucket > most * n + 1e-9:
                raise Wrong(f"{said}: {n} grows to {bucket}, more than {most} times")
        fewest = _fewest(lengths, most)
        if len(got) > fewest:
            raise Wrong(
                f"{said}, {len(got)} buckets; {fewest} can do it. Begin with the"
                f" longest; a length may grow by {most}, no more"
            )


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
            " `torch.where` (section 8), and there (y * (y > 1)).sum() does not cut."
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
        title="Two counters",
        name="verdict",
        stars=2,
        check=check_verdict,
        hints=[
            "Only differences count: what did a step add to each counter?",
            "compiled[2] is the counter after the warm-up. Has it grown since?",
            "Go through run in pairs, zip(run[2:], run[3:]): is one more than 1 apart?",
        ],
        solution="""
def verdict(compiled, run):
    if compiled[-1] > compiled[2]:
        return "compiles"
    steps = zip(run[2:], run[3:])
    cut = any(now - before > 1 for before, now in steps)
    return "cut" if cut else "steady"
""",
        praise=(
            "Ten such lines at the end of a job's first minute cost nothing, and find"
            " what a clock only makes you suspect."
        ),
    ),
    Exercise(
        number="13.5",
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
