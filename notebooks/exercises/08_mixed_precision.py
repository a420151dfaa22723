"""Exercises of lesson 08."""

import copy
import math

import torch
import torch.nn.functional as F

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.fake import fake_autocast

LINES = {
    "h @ w": "a product is on the list of what runs in 16 bits, so the float32 weight is cast down",
    "h.softmax(-1)": "softmax is on CUDA's list of what needs float32",
    "h.relu()": "relu is on no list, so it keeps the type of what it gets",
    "h + w": "an addition is on no list, so the ordinary rule of type promotion holds: the wider type wins",
    "h.sum()": "a sum over many numbers is on CUDA's list of what needs float32",
    "torch.cat([h, h])": "both pieces are float16, and there is nothing to promote",
}


def check_dtypes(answer):
    if not isinstance(answer, (list, tuple)) or len(answer) != len(LINES):
        raise Wrong(f"expected a list of {len(LINES)} names of types, got {answer!r}")
    if any(given is DOTS for given in answer):
        raise NotAnswered
    with fake_autocast(torch.float16):
        h, w = torch.ones(8, 8, dtype=torch.float16, device="cuda"), torch.ones(8, 8, device="cuda")
        right = [str(eval(line, {"torch": torch, "h": h, "w": w}).dtype).removeprefix("torch.") for line in LINES]
    for given, expected, (line, why) in zip(answer, right, LINES.items(), strict=True):
        if str(given).removeprefix("torch.") != expected:
            raise Wrong(f"for {line} you said {given!r}, PyTorch gives {expected}: {why}")


def check_padded(answer):
    for n, size in ((50257, 2), (50304, 2), (1000, 4), (1000, 1), (1, 2), (127, 1), (4096, 2), (33, 4)):
        expected = -(-n * size // 128) * 128 // size
        got = call(answer, n, size, shown=f"n = {n} numbers of {size} byte{'s' if size > 1 else ''}")
        if isinstance(got, bool) or got != expected:
            raise Wrong(
                f"for n = {n} numbers of {size} bytes you returned {got!r}, expected {expected}{_pad(got, n, size)}"
            )
        if not isinstance(got, int):
            raise Wrong(f"right value, but {got!r} is no whole number, and a shape needs one")


def _pad(got, n, size):
    numbers = 128 // size
    if got == -(-n // 128) * 128 and size > 1:
        return f": you rounded to 128 numbers; 128 bytes are {numbers} numbers of {size} bytes"
    if got == n // numbers * numbers:
        return ": that rounds down, and cuts something off"
    if got == n + numbers - n % numbers:
        return ": it was aligned already, nothing is to be added"
    return ""


KEPT = [
    (0.3, "rounding to the nearest"),
    (-0.3, "the sign goes along"),
    (1 + 2.0**-11, "in float16 this lies halfway between two neighbors: the even one wins"),
    (1 + 3 * 2.0**-11, "in float16 this lies halfway between two neighbors: the even one wins"),
    (3.0, "a number that all formats know"),
    (1e-7, "below the smallest normal number the steps get no smaller"),
    (3e-6, "below the smallest normal number the steps get no smaller"),
    (2.0**-26, "less than half of the smallest number is zero"),
    (0.0, "zero stays zero"),
    (65504.0, "the largest number of float16"),
    (70000.0, "too large for five bits of exponent"),
    (-70000.0, "too large for five bits of exponent, on the other side"),
    (1e38, "within the range of bfloat16"),
]


def check_keep(answer):
    for dtype, e, m in ((torch.float16, 5, 10), (torch.bfloat16, 8, 7), (torch.float8_e5m2, 5, 2)):
        for x, why in KEPT:
            x = torch.tensor(x).item()  # what float32 keeps of it: PyTorch goes through float32, too
            expected = torch.tensor(x).to(dtype).float().item()
            shown = f"keep_bits({x:.8g}, {e}, {m})"
            got = call(answer, x, e, m, shown=shown)
            if isinstance(got, bool) or not isinstance(got, (int, float)):
                raise Wrong(f"{shown} gave {got!r}, expected a Python number")
            if got != expected:
                name = str(dtype).removeprefix("torch.")
                raise Wrong(f"{shown} gave {got:.8g}, PyTorch's {name} keeps {expected:.8g}: {why}")


def check_update(answer):
    master, lr = torch.ones(4), 0.1
    weight = torch.nn.Parameter(master.bfloat16())
    address, grad = weight.data_ptr(), torch.tensor([-1e-3, 0.0, 1e-3, -2.0], dtype=torch.bfloat16)
    expected = master.clone()
    for _ in range(100):
        call(answer, weight, master, grad, lr, shown="a bfloat16 weight, its float32 master copy, a bfloat16 gradient")
        expected -= lr * grad.float()
    if weight.dtype != torch.bfloat16:
        raise Wrong(f"the weight is {weight.dtype} now; the forward pass needs it in bfloat16")
    if weight.data_ptr() != address:
        raise Wrong("the weight has new memory now: fill the old one, with copy_, and no one else has to know")
    if torch.equal(master, torch.ones(4)):
        raise Wrong("after 100 updates the master copy is what it was: it is the one to be updated")
    if torch.allclose(master, 1 - 100 * (lr * grad).float(), rtol=1e-5):
        raise Wrong("lr * grad was rounded to bfloat16 before the master copy took it: use grad.float()")
    if not torch.allclose(master, expected, rtol=1e-4):
        raise Wrong(
            f"after 100 updates the master copy is {_list(master)}, expected {_list(expected)}"
            + (": small updates were lost, because they went through bfloat16" if master[0] == 1 else "")
            + (": it was overwritten by the rounded weight" if 1 < master[0] < expected[0] else "")
        )
    if torch.equal(weight, torch.ones(4, dtype=torch.bfloat16)):
        raise Wrong("the weight is what it was: it should be the master copy, rounded")
    if not torch.equal(weight.detach(), expected.bfloat16()):
        raise Wrong(
            f"the weight is {_list(weight)}, the master copy rounded to bfloat16 is {_list(expected.bfloat16())}"
        )


def _list(x):
    return [round(value, 4) for value in x.detach().float().tolist()]


class SpyScaler(torch.amp.GradScaler):
    """A GradScaler on the CPU that notes what is asked of it."""

    def __init__(self):
        super().__init__("cpu", init_scale=2.0**10)
        self.calls = []

    def scale(self, outputs):
        self.calls.append("scale")
        return super().scale(outputs)

    def unscale_(self, optimizer):
        self.calls.append("unscale_")
        return super().unscale_(optimizer)

    def step(self, optimizer, *args, **kwargs):
        self.calls.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        self.calls.append("update")
        return super().update(new_scale)


class Run:
    """One call of the answer, and what the model and the optimizer saw."""

    def __init__(self, answer, max_norm, k=4):
        generator = torch.Generator().manual_seed(0)
        self.model, self.k = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)), k
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
                p.grad = torch.full_like(p, 5000.0)  # left over from the step before, with its scale
        x, y = torch.randn(32, 8, generator=generator), torch.randint(3, (32,), generator=generator)
        twin = copy.deepcopy(self.model)
        twin.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        self.expected = norm(twin)
        self.forward, self.backward, self.seen, self.scaler = [], [], [], SpyScaler()
        self.model.register_forward_hook(lambda *_: self.forward.append(autocast_type()))
        last = list(self.model.parameters())[-1]
        last.register_hook(lambda grad: self.backward.append(torch.is_autocast_enabled("cpu")))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(lambda *_: self.seen.append(norm(self.model)))
        batches = list(zip(x.split(32 // k), y.split(32 // k), strict=True))
        call(answer, self.model, optimizer, self.scaler, batches, max_norm, shown=f"{k} batches, max_norm {max_norm}")

    def check(self, expected):
        count = {name: self.scaler.calls.count(name) for name in ("scale", "step", "update")}
        if len(self.forward) != self.k or not self.seen:
            raise Wrong(
                f"{self.k} batches: the model ran {len(self.forward)} times, the optimizer {len(self.seen)} times, "
                f"expected {self.k} and 1"
            )
        if not all(self.forward):
            raise Wrong("the model ran without autocast: put the forward pass and the loss into it")
        if any(dtype != torch.float16 for dtype in self.forward):
            raise Wrong("autocast ran with another type: dtype=torch.float16")
        if any(self.backward):
            raise Wrong("backward ran within autocast: it belongs behind it, each operation remembers its own types")
        if len(self.backward) != self.k:
            raise Wrong(
                f"backward ran {len(self.backward)} times for {self.k} batches: call it for each of them, or the "
                "activations of all stay in memory until the end"
            )
        if count["scale"] != self.k:
            raise Wrong(f"{self.k} backward passes, {count['scale']} scaled losses: each loss needs the scale")
        if len(self.seen) != 1:
            raise Wrong(f"{len(self.seen)} optimizer steps for {self.k} batches: accumulate first, step once")
        if count["step"] != 1:
            raise Wrong("use scaler.step(optimizer): it skips the step where a gradient is not finite")
        if count["update"] != 1:
            raise Wrong(f"scaler.update() was called {count['update']} times: once for each step of the optimizer")
        if not math.isclose(self.seen[0], expected, rel_tol=0.02):
            raise Wrong(
                f"the optimizer saw a gradient of norm {self.seen[0]:.3g}, expected {expected:.3g}{self.slip(expected)}"
            )

    def slip(self, expected):
        ratio = self.seen[0] / expected
        if math.isclose(ratio, self.k, rel_tol=0.05):
            return f": the gradients of {self.k} means add up. Divide each loss by the number of batches"
        if math.isclose(ratio, 1 / 2**10, rel_tol=0.05):
            return ": it was clipped while it still had the scale. unscale_ first, once"
        if ratio > 2**9:
            return ": it still has the scale"
        if ratio > 1:
            return ": is it the sum of all batches, without what was left over from before (zero_grad), and clipped?"
        return ": it should be the sum over all batches; zero_grad and clipping come once"


def autocast_type():
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def norm(model):
    return math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters() if p.grad is not None))


def check_accumulate(answer):
    run = Run(answer, 1e6)  # nothing to clip: the gradient of the whole batch
    run.check(run.expected)
    run = Run(answer, 0.125)
    run.check(0.125)


ACCUMULATE = """
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

def accumulate(model, optimizer, scaler, batches, max_norm):
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y) / len(batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
"""
KEEP = """
import math

def keep_bits(x, exponent_bits, mantissa_bits):
    if x == 0:
        return x
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.frexp(x)[1] - 1, 1 - bias)
    step = 2.0 ** (exponent - mantissa_bits)
    kept = round(x / step) * step
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
    return kept if abs(kept) <= largest else math.copysign(math.inf, x)
"""
UPDATE = """
@torch.no_grad()
def update(weight, master, grad, lr):
    master -= lr * grad.float()
    weight.copy_(master)
"""

EXERCISES = [
    Exercise(
        number="08.1",
        title="Which type comes out?",
        name="dtypes",
        stars=2,
        check=check_dtypes,
        hints=[
            "Three cases: on the list for 16 bits, on the list for float32, on none.",
            "On no list: the type stays what it was; of two types the wider one wins.",
            "Products go down to 16 bits, softmax and sums up to float32, the other three are on no list.",
        ],
        solution="""
dtypes = ["float16", "float32", "float16", "float32", "float32", "float16"]
""",
        praise="h + w is the one that surprises people: one float32 tensor, such as a mask or a positional table, and "
        "all that follows is float32 up to the next product.",
        wrong={
            'dtypes = ["float32", "float32", "float16", "float32", "float32", "float16"]': "the float32 weight is cast",
            'dtypes = ["float16", "float16", "float16", "float32", "float32", "float16"]': "softmax is on CUDA's list",
            'dtypes = ["float16", "float32", "float32", "float32", "float32", "float16"]': "relu is on no list",
            'dtypes = ["float16", "float32", "float16", "float16", "float32", "float16"]': "the wider type wins",
            'dtypes = ["float16", "float32", "float16", "float32", "float16", "float16"]': "a sum over many numbers",
            'dtypes = ["float16", "float32", "float16", "float32", "float32", "float32"]': "nothing to promote",
            'dtypes = ["float16", "float32"]': "expected a list of 6",
        },
    ),
    Exercise(
        number="08.2",
        title="Pad to 128 bytes",
        name="padded",
        stars=2,
        check=check_padded,
        hints=[
            "How many numbers of that size are 128 bytes?",
            "Round n up to a multiple of that, with whole numbers only.",
            "-(-n // k) * k rounds n up to a multiple of k.",
        ],
        solution="""
def padded(n, itemsize):
    k = 128 // itemsize
    return -(-n // k) * k
""",
        praise="50,257 entries are the vocabulary of GPT-2; padded, they are 50,304. The rows that nobody asks for "
        "cost a thousandth of the work.",
        wrong={
            """
def padded(n, itemsize):
    return -(-n // 128) * 128
""": "you rounded to 128 numbers",
            """
def padded(n, itemsize):
    k = 128 // itemsize
    return n // k * k
""": "rounds down",
            """
def padded(n, itemsize):
    k = 128 // itemsize
    return n + k - n % k
""": "aligned already",
            """
import math

def padded(n, itemsize):
    k = 128 / itemsize
    return math.ceil(n / k) * k
""": "no whole number",
        },
    ),
    Exercise(
        number="08.3",
        title="Build a number format",
        name="keep_bits",
        stars=2,
        check=check_keep,
        hints=[
            "math.frexp(x)[1] - 1 is the exponent of x: the largest k with 2**k not above abs(x).",
            "Neighbors of x are 2.0 ** (exponent - mantissa_bits) apart. Python's round takes the even one in a tie.",
            "The exponent is at least 1 - bias. What is above (2 - 2.0 ** -mantissa_bits) * 2.0 ** bias is infinite.",
        ],
        solution=KEEP,
        praise="You can now try formats that no hardware has. With the float8_e4m3fn of PyTorch it would disagree at "
        "the upper end only: that format has no infinity, and uses the bit patterns for numbers.",
        wrong={
            KEEP.replace("round(x / step)", "int(x / step)"): "rounding to the nearest",
            KEEP.replace("max(math.frexp(x)[1] - 1, 1 - bias)", "math.frexp(x)[1] - 1"): "the steps get no smaller",
            KEEP.replace("kept if abs(kept) <= largest else math.copysign(math.inf, x)", "kept"): "too large",
            KEEP.replace("math.copysign(math.inf, x)", "math.inf"): "on the other side",
            KEEP.replace("round(x / step)", "math.floor(x / step + 0.5)"): "the even one wins",
            KEEP.replace("    if x == 0:\n        return x\n", "    if abs(x) < 1e-6:\n        return 0.0\n"): (
                "the steps get no smaller"
            ),
        },
    ),
    Exercise(
        number="08.4",
        title="A master copy of the weights",
        name="update",
        stars=2,
        check=check_update,
        hints=[
            "Two lines: update the master copy, in float32 (grad.float()), then round it into the weight.",
            "weight.copy_(master) rounds, and keeps the memory and the type of weight.",
            "weight is a parameter, so autograd must not watch: with torch.no_grad().",
        ],
        solution=UPDATE,
        praise="AMP does it the other way round: the float32 copy is the parameter, and the 16-bit copy is made in "
        "each forward pass and thrown away. Libraries that train in pure bfloat16 keep a master copy as you do.",
        wrong={
            """
@torch.no_grad()
def update(weight, master, grad, lr):
    weight -= lr * grad
""": "it is the one to be updated",
            """
@torch.no_grad()
def update(weight, master, grad, lr):
    master.sub_(lr * grad)
    weight.copy_(master)
""": "was rounded to bfloat16 before",
            """
def update(weight, master, grad, lr):
    master -= lr * grad.float()
    weight.copy_(master)
""": "raised RuntimeError",
            """
def update(weight, master, grad, lr):
    master -= lr * grad.float()
    weight.data = master
""": "needs it in bfloat16",
            """
def update(weight, master, grad, lr):
    master -= lr * grad.float()
    weight.data = master.bfloat16()
""": "has new memory now",
            """
@torch.no_grad()
def update(weight, master, grad, lr):
    master -= lr * grad.float()
""": "it should be the master copy, rounded",
            """
@torch.no_grad()
def update(weight, master, grad, lr):
    weight -= lr * grad
    master.copy_(weight)
""": "went through bfloat16",
            """
def update(weight, master, grad, lr):
    master -= lr * grad.float()
    weight = master.bfloat16()
""": "it should be the master copy, rounded",
        },
    ),
    Exercise(
        number="08.5",
        title="Four batches, one step",
        name="accumulate",
        stars=2,
        check=check_accumulate,
        hints=[
            "In the loop: autocast around forward pass and loss, then scaler.scale(loss).backward() outside of it.",
            "Behind the loop, once: unscale_, clip, step, update. Before it, once: zero_grad.",
            "The mean over all batches is the sum of loss / len(batches).",
        ],
        solution=ACCUMULATE,
        praise="The scale must not change between two batches of one step: the gradients would add up with different "
        "scales. So update belongs behind the loop.",
        wrong={
            ACCUMULATE.replace(" / len(batches)", ""): "Divide each loss by the number of batches",
            ACCUMULATE.replace("    scaler.update()\n", ""): "update() was called 0 times",
            ACCUMULATE.replace("    optimizer.zero_grad()\n", ""): "zero_grad",
            ACCUMULATE.replace("scaler.scale(loss).backward()", "loss.backward()"): "did not use scaler.scale(loss",
            ACCUMULATE.replace("scaler.step(optimizer)", "optimizer.step()").replace("    scaler.update()\n", ""): (
                "use scaler.step(optimizer)"
            ),
            ACCUMULATE.replace("        scaler.scale(loss)", "            scaler.scale(loss)"): "within autocast",
            ACCUMULATE.replace("dtype=torch.float16", "dtype=torch.float16, enabled=False"): "without autocast",
            ACCUMULATE.replace("dtype=torch.float16", "dtype=torch.bfloat16"): "another type",
            """
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

def accumulate(model, optimizer, scaler, batches, max_norm):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        total = sum(F.cross_entropy(model(x), y) / len(batches) for x, y in batches)
    scaler.scale(total).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
""": "backward ran 1 times for 4 batches",
            ACCUMULATE.replace("    scaler.unscale_(optimizer)\n", ""): "unscale_ first, once",
            ACCUMULATE.replace("    clip_grad_norm_(model.parameters(), max_norm)\n", ""): "and clipped?",
            ACCUMULATE.replace("    scaler.unscale_", "        scaler.unscale_")
            .replace("    clip_grad", "        clip_grad")
            .replace("    scaler.step", "        scaler.step")
            .replace("    scaler.update", "        scaler.update"): "4 optimizer steps for 4 batches",
        },
    ),
]
