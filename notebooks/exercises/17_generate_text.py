"""Exercises of lesson 17."""

from types import SimpleNamespace

import torch
from torch import nn

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.generation import OnGpu, Planned, Slots, TinyDecoder

# --------------------------------------------------------------------------------------
# 17.0

GIB = 2**30


class Stored(nn.Module):
    """A model of parameters and buffers alone. parts: name → tensor; an integer one is
    a buffer, as quantized weights are.
    """

    def __init__(self, **parts):
        super().__init__()
        for name, x in parts.items():
            if x.dtype.is_floating_point:
                setattr(self, name, nn.Parameter(x))
            else:
                self.register_buffer(name, x)


def _meta(numbers, dtype=torch.bfloat16):
    return torch.empty(numbers, dtype=dtype, device="meta")


def _weights(model):
    return sum(x.nbytes for x in [*model.parameters(), *model.buffers()])


def _cache(shape, like):
    where = {"dtype": like.dtype, "device": like.device}
    return SimpleNamespace(k=torch.empty(shape, **where), v=torch.empty(shape, **where))


def _small():
    return Stored(up=torch.ones(40, 10), down=torch.ones(10, 10), norm=torch.ones(10))


def _llama():
    return Stored(all=_meta(8_030_261_248))


def _int8():
    scales = _meta(1_640_000, torch.float32)
    return Stored(all=_meta(8_028_000_000, torch.int8), scales=scales)


def _tied():
    model = Stored(embed=torch.ones(50, 8), up=torch.ones(8, 32), down=torch.ones(4))
    model.head = model.embed
    return model


HALF, FULL = _meta(1), torch.ones(1)
ROOMS = [  # model; of the caches layers, shape, dtype; bytes, answers; what it is about
    ("a small model", _small, 3, (1, 2, 16, 5), FULL, 60_000, 5, ""),
    ("Llama 3.1 8B", _llama, 32, (1, 8, 10, 128), HALF, 24 * GIB, 1, ""),
    ("Llama 3.1 8B", _llama, 32, (4, 8, 100, 128), HALF, 80 * 10**9, 7, ""),
    ("8-bit weights", _int8, 32, (2, 8, 64, 128), HALF, 12 * GIB, 3, ""),
    ("tied weights", _tied, 2, (3, 1, 7, 4), FULL, 20_000, 5, ""),
    ("Llama 3.1 8B", _llama, 32, (1, 8, 10, 128), HALF, 8 * GIB, 1, "no room at all"),
    (
        "a small model",
        _small,
        3,
        (2, 2, 8, 5),
        FULL,
        2_040 + 4 * 3 * 240 - 1,
        3,
        "a byte is missing for the fourth token",
    ),
    (
        "a small model",
        _small,
        3,
        (2, 2, 8, 5),
        FULL,
        2_040 + 4 * 3 * 240,
        3,
        "four tokens of each fill it to the byte",
    ),
]


def check_tokens_that_fit(answer):
    for what, make, layers, shape, like, memory, answers, about in ROOMS:
        model = make()
        caches = [_cache(shape, like) for _ in range(layers)]
        shown = (
            f"{what} of {_weights(model):,} bytes, {layers} caches with keys of shape"
            f" {shape} in {like.dtype}, memory={memory:,} and answers={answers}"
        )
        got = call(answer, model, caches, memory, answers, shown=shown)
        got = expect.number(got, shown, "a whole number")
        held = sum(cache.k.nbytes + cache.v.nbytes for cache in caches)
        expected, slips = _room_slips(model, held, memory, answers, layers, shape)
        why = about or next((text for value, text in slips if got == value), "")
        if got < 0:
            why = "0 where not even the weights fit"
        expect.equal(got, expected, shown, why)


def _room_slips(model, held, memory, answers, layers, shape):
    """What is right, and pairs (another number, what went wrong)."""
    now, _, room, _ = shape
    token = held // (now * room)
    parameters, buffers = list(model.parameters()), list(model.buffers())
    numbers = sum(x.numel() for x in parameters + buffers)
    without_buffers = sum(x.nbytes for x in parameters)
    twice = sum(x.nbytes for x in model.state_dict().values())
    free = max(0, memory - _weights(model))
    slips = [
        (free / (token * answers), "whole tokens: // in place of /"),
        (free / token / answers, "whole tokens: // in place of /"),
        (free // (token // 2 * answers), "a token leaves a key and a value"),
        (free // (token // layers * answers), "each layer has a cache"),
        (free // token, "each answer has a cache of its own"),
        (free // (held // now * answers), f"these caches have {room} seats"),
        (free // (held // room * answers), f"these caches are of {now} answers"),
        (free // (held * answers), "of these caches, what is one token's"),
        (memory // (token * answers), "the weights take up memory, too"),
        ((memory - numbers) // (token * answers), "weights in bytes, not in numbers"),
        ((memory - without_buffers) // (token * answers), "buffers are weights, too"),
        ((memory - twice) // (token * answers), "tied weights are there once"),
    ]
    return free // (token * answers), slips


# --------------------------------------------------------------------------------------
# 17.1

PROMPTS = [  # answers, tokens, at most so many a call, seats
    (2, 12, 4, 16),
    (1, 13, 4, 15),
    (2, 5, 8, 9),
    (3, 9, 1, 9),
    (1, 7, 3, 7),
    (2, 1, 2, 6),
    (2, 6, 6, 10),
]


def check_prefill(answer):
    with torch.inference_mode():
        for batch, length, most, room in PROMPTS:
            shown = f"{batch} × {length} tokens, {room} seats, most={most}"
            _judge_prefill(answer, batch, length, most, room, shown)
        _judge_elsewhere(answer)


def _prompt(batch, length):
    random = torch.Generator().manual_seed(length)
    return torch.randint(TinyDecoder.symbols, (batch, length), generator=random)


def _judge_prefill(answer, batch, length, most, room, shown):
    model, tokens, at = TinyDecoder(), _prompt(batch, length), torch.arange(length)
    seats = torch.arange(room)
    right = model(tokens, at, model.caches(batch, room), seats <= at[:, None])
    model.calls.clear()
    got = call(answer, model, tokens, model.caches(batch, room), most, shown=shown)
    expect.instance(got, torch.Tensor, shown, "the logits of the last token")
    sizes = [len(one.at) for one in model.calls]
    fewest = -(-length // most)
    for fault, sentence in (
        (max(sizes, default=0) > most, f"at most {most} are allowed"),
        (sum(sizes) != length, f"each of the {length} is needed once"),
        (len(sizes) > fewest, f"{fewest} calls are enough"),
    ):
        if fault:
            raise Wrong(f"for {shown} the model got {sizes} tokens: {sentence}")
    given = torch.cat([one.tokens for one in model.calls], dim=1)
    if not torch.equal(given, tokens):
        raise Wrong(f"for {shown} the model got the tokens in another order")
    for one, first in zip(model.calls, range(0, length, most), strict=True):
        _judge_call(one, first, seats, shown)
    if got.shape != right[:, -1].shape:
        raise Wrong(
            f"for {shown} you returned a tensor of shape {tuple(got.shape)}, expected"
            f" {tuple(right[:, -1].shape)}: the logits of the last token"
        )
    if not torch.allclose(got, right[:, -1], atol=1e-9):
        difference = (got - right[:, -1]).abs().max()
        raise Wrong(
            f"for {shown} your logits differ by {difference:.2g} from those of the last"
            " token, given all tokens at once"
        )


def _judge_call(one, first, seats, shown):
    """Wrong where a call of the model, from token `first` on, got other places or
    another mask than it should.
    """
    last = first + len(one.at) - 1
    where = f"for {shown} the call with tokens {first} to {last}"
    if len(one.at) == 1:
        where = f"for {shown} the call with token {first}"
    places = torch.arange(first, last + 1)
    if not torch.equal(one.at, places):
        raise Wrong(
            f"{where} got at = {one.at.tolist()}, expected {places.tolist()}: a token's"
            " place counts from the beginning of the text, and is its seat"
        )
    seen, right = one.seen(len(seats)), seats <= places[:, None]
    mask = "no mask" if one.mask is None else "a mask"
    for fault, sentence in (
        (
            seen & ~right & (seats <= last),
            "a token sees later ones of its own piece",
        ),
        (seen & ~right, "a token sees seats that are still free"),
        (~seen & right & (seats == places[:, None]), "a token does not see itself"),
        (~seen & right, "a token does not see all that stand before it"),
    ):
        if fault.any():
            raise Wrong(f"{where} got {mask}, by which {sentence}")


def _judge_elsewhere(answer):
    """As on a GPU, where what is made without device= is on another device."""
    model, shown = TinyDecoder(), "tokens, model and caches on a GPU"
    given = model, _prompt(2, 7), model.caches(2, 9), 3
    with OnGpu(numpy_raises=False):
        call(answer, *given, shown=shown)


# --------------------------------------------------------------------------------------
# 17.2

END = 9
PLANS = [  # what each answer says; steps at most, asked for every n steps
    (["595555555555", "555595555555"], 12, 4),
    (["555555555555"], 12, 4),
    (["955555"], 6, 2),
    (["1925367", "9123945"], 7, 3),
    (["12345678", "87654329", "11111119"], 8, 3),
    (["3149", "1599", "9999"], 4, 1),
    (["123949", "678910"], 6, 1),
    (["12934", "56789"], 5, 8),
    (["1239594", "7654909", "9123456"], 7, 2),
]


def check_until_end(answer):
    for texts, most, every in PLANS:
        plan = [[int(letter) for letter in text] for text in texts]
        # whoever asks after the last step wins nothing, and is right
        steps = next((n for n in range(every, most, every) if _all_done(plan, n)), most)
        shown = (
            f"answers that say {', '.join(texts)}, end=9, most={most}, every={every}"
        )
        step = Planned(plan)
        with OnGpu(numpy_raises=False) as waits:
            got = call(answer, step, END, most, every, shown=shown)
        _judge_fetches(waits.names, len(step.given), every, shown)
        _judge_steps(plan, steps, step, most, every, shown)
        _judge_given(plan, step.given, shown)
        asked = "a list of lists of Python numbers, one for each answer"
        rows = list(expect.instance(got, (list, tuple), shown, asked))
        rows = [list(expect.instance(row, (list, tuple), shown, asked)) for row in rows]
        expected = [_until_end(row[:most]) for row in plan]
        why = "of each answer what it says before its first 9"
        if rows == [row[:steps] for row in plan]:
            why = f"cut each answer at its first 9: {why}"
        expect.equal(rows, expected, shown, why)


def _until_end(row):
    return row[: row.index(END)] if END in row else row


def _all_done(plan, steps):
    return all(END in row[:steps] for row in plan)


def _judge_fetches(names, steps, every, shown):
    allowed = steps // every + 1
    if len(names) > allowed:
        most = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        raise Wrong(
            f"for {shown} you fetched values {len(names)} times in {steps} steps"
            f" ({most}), expected {allowed} at most: one every {every} steps, one at"
            " the end"
        )


def _judge_steps(plan, steps, step, most, every, shown):
    took = len(step.given)
    if took == steps:
        return
    why = (
        f"all have said 9 by then, and the answer to that is asked every {every} steps"
    )
    if steps == most:
        why = "not all have said 9 at an earlier question"
    if took < steps and not _all_done(plan, took):
        why = "an answer was not finished"
    if took > steps and any(END not in row[took - 1 : took] for row in plan):
        why += "; keep in mind who has said it in earlier steps"
    raise Wrong(f"for {shown} you took {took} steps, expected {steps}: {why}")


def _judge_given(plan, given, shown):
    if given[0] is not None:
        raise Wrong(f"for {shown} the first step got {given[0]!r}, expected None")
    for n, token in enumerate(given[1:], 1):
        if not isinstance(token, torch.Tensor) or token.shape != (len(plan), 1):
            what = getattr(token, "shape", None)
            what = repr(token) if what is None else f"a tensor of shape {tuple(what)}"
            raise Wrong(
                f"for {shown} step {n + 1} got {what}, expected the tensor of shape"
                f" {(len(plan), 1)} that the step before has returned"
            )
        for row, said in zip(plan, token.flatten().tolist(), strict=True):
            if END not in row[:n] and said != row[n - 1]:
                raise Wrong(
                    f"for {shown} step {n + 1} got {said} from an answer that has just"
                    f" said {row[n - 1]}: each step takes what the one before returned"
                )


# --------------------------------------------------------------------------------------
# 17.3

# as their configurations and names have them, and two models of nobody
LLAMA_3 = {"weights": 8_030_261_248, "layers": 32, "heads": 32, "kv_heads": 8}
LLAMA_2 = {"weights": 6_738_415_616, "layers": 32, "heads": 32, "kv_heads": 32}
LLAMA_3["size"] = LLAMA_2["size"] = 128
TINY = {"weights": 1_000, "layers": 2, "heads": 6, "kv_heads": 3, "size": 8}
DEEP = {"weights": 50_000, "layers": 7, "heads": 4, "kv_heads": 1, "size": 5}
NAMES = {8_030_261_248: "Llama 3.1 8B", 6_738_415_616: "Llama 2 7B"}
LARGE, OLDER, SLOW = (3.35e12, 989e12), (1.555e12, 312e12), (100.0, 1_000.0)
STEPS = [  # config, bytes each, answers, tokens of each, bytes/s and operations/s
    (LLAMA_3, 2, 1, 100, *LARGE),
    (LLAMA_3, 2, 64, 100, *LARGE),
    (LLAMA_3, 2, 2_000, 100, *LARGE),
    (LLAMA_3, 2, 400, 1, *LARGE),
    (LLAMA_3, 2, 400, 8_000, *LARGE),
    (LLAMA_3, 0.5, 200, 10, *LARGE),
    (LLAMA_2, 2, 16, 2_000, *OLDER),
    (LLAMA_2, 2, 256, 0, *OLDER),
    (TINY, 4, 13, 3, *SLOW),
    (DEEP, 8, 42, 1, *SLOW),
    (DEEP, 8, 43, 1, *SLOW),
]
WORDS = "memory", "compute"


def check_least_seconds(answer):
    for config, each, answers, tokens, bandwidth, flops in STEPS:
        name = NAMES.get(config["weights"], f"config = {config}")
        shown = (
            f"{name}, bytes_each={each}, answers={answers}, tokens={tokens},"
            f" {bandwidth:g} bytes/s, {flops:g} operations/s"
        )
        given = config, each, answers, tokens, bandwidth, flops
        seconds, word = _seconds_and_word(call(answer, *given, shown=shown), shown)
        count = config["weights"]
        cache = 2 * config["layers"] * config["kv_heads"] * config["size"] * tokens
        read = (count + answers * cache) * each / bandwidth
        work = 2 * count * answers / flops
        why = f"reading takes {read:.4g} s, computing {work:.4g} s"
        slips = [
            (read + work, "reading and computing go on at once: the longer one counts"),
            (
                max(answers * (count + cache) * each / bandwidth, work),
                "the weights are read once for all answers",
            ),
            (
                max((count + cache) * each / bandwidth, work),
                "each answer reads a cache of its own",
            ),
            (max(count * each / bandwidth, work), "the caches are read, too"),
            (
                max((count + answers * cache / 2) * each / bandwidth, work),
                "a token leaves a key and a value",
            ),
            (
                max(
                    (count + answers * cache * config["heads"] / config["kv_heads"])
                    * each
                    / bandwidth,
                    work,
                ),
                "the cache has the KV heads; only queries have all",
            ),
            (max(read, work / 2), "two operations a weight, for each answer"),
            (max(read / each, work), "a number takes bytes_each bytes"),
            (min(read, work), f"{why}: the longer of the two counts"),
        ]
        expected = max(read, work)
        expect.close(seconds, expected, shown, why, slips, unit=" s")
        said = "right seconds, but you returned"
        expect.equal(word, WORDS[work > read], shown, why, said=said)


def _seconds_and_word(got, shown):
    asked = 'a pair: the seconds, and "memory" or "compute"'
    expect.instance(got, (list, tuple), shown, asked)
    if len(got) == 2 and got[0] in WORDS:
        raise Wrong(f"for {shown} you returned {got!r}: first the seconds")
    if len(got) != 2 or got[1] not in WORDS:
        raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
    return expect.real(got[0], shown, asked), got[1]


# --------------------------------------------------------------------------------------
# 17.4

RUNS = [  # layers, passes, seconds to copy a layer, seconds to compute with it
    (6, 1, 1, 3),
    (6, 2, 3, 1),
    (5, 2, 2, 2),
    (5, 3, 1, 3),
    (3, 2, 2, 3),
    (4, 3, 3, 2),
    (3, 1, 1, 1),
]


def _stream(layers, passes, fetch, compute, wait):
    """What the solution does: to compare with."""
    done = [None, None]
    for n in range(layers * passes):
        if n > 1:
            wait("copier", done[n % 2])
        wait("worker", fetch(n % layers, n % 2))
        done[n % 2] = compute(n % 2)


def check_stream(answer):
    for layers, passes, copy, work in RUNS:
        shown = (
            f"{layers} layers, {passes} passes, {copy} s to copy and {work} s to"
            " compute"
        )
        slots, best = Slots(layers, copy, work), Slots(layers, copy, work)
        given = slots.fetch, slots.compute, slots.wait
        call(answer, layers, passes, *given, shown=shown)
        _stream(layers, passes, best.fetch, best.compute, best.wait)
        _judge_order(slots, list(range(layers)) * passes, shown)
        _judge_races(slots, shown)
        if slots.end() > best.end():
            raise Wrong(
                f"for {shown} it takes {slots.end():g} s, {best.end():g} are possible:"
                f" {_first_delay(slots, best)}"
            )


def _judge_order(slots, wanted, shown):
    got = slots.computed
    if got != wanted:
        n = next(
            (n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b),
            min(len(got), len(wanted)),
        )
        mine = f"layer {got[n]}" if n < len(got) else "nothing"
        theirs = f"layer {wanted[n]}" if n < len(wanted) else "nothing"
        raise Wrong(
            f"for {shown} compute number {n} works with {mine}, expected {theirs}"
        )
    for number, layer, slot in slots.unused:
        raise Wrong(
            f"for {shown} fetch number {number} brings layer {layer} into slot {slot},"
            " and nobody computes with it"
        )


def _judge_races(slots, shown):
    for first, second in slots.races():
        kinds = first.split()[0], second.split()[0]
        if kinds == ("fetch", "compute"):
            raise Wrong(
                f"for {shown} {second} may begin before {first} has brought the layer:"
                " the worker must wait for the copy"
            )
        raise Wrong(
            f"for {shown} {second} may overwrite the slot that {first} still reads: the"
            " copier must wait for it"
        )


def _first_delay(slots, best):
    """Which operation begins later than it could, and why."""
    mine, theirs = slots.spans(), best.spans()
    slot_of = {number: slot for number, _, slot in slots.fetched}
    for name, span in theirs.items():
        if name in mine and mine[name].start > span.start:
            why = f"{name} begins at {mine[name].start:g}, could at {span.start:g}"
            number = int(name.split()[1])
            is_fetch = name.startswith("fetch")
            if is_fetch and number and slot_of[number] == slot_of[number - 1]:
                return (
                    f"{why}. It goes into the slot of the fetch before: take the slots"
                    " in turns, from pass to pass as well"
                )
            waits = [
                other for other, one in mine.items() if one.end == mine[name].start
            ]
            return f"{why}. It waits for {waits[-1]}" if waits else why
    return "an operation begins later than it could"


EXERCISES = [
    Exercise(
        number="17.0",
        title="How long may the answers get?",
        name="tokens_that_fit",
        stars=1,
        check=check_tokens_that_fit,
        hints=[
            (
                "x.nbytes is what a tensor holds, in bytes. What is free beside the"
                " weights? What do all caches hold for one token of one answer?"
            ),
            (
                "The weights are [*model.parameters(), *model.buffers()]: each once,"
                " also where two layers share one."
            ),
            (
                "Sum k.nbytes + v.nbytes over all layers, and divide it by answers ·"
                " room, which stand in the shape of k."
            ),
        ],
        solution="""
def tokens_that_fit(model, caches, memory, answers):
    weights = [*model.parameters(), *model.buffers()]
    free = memory - sum(x.nbytes for x in weights)
    now, _, room, _ = caches[0].k.shape
    token = sum(cache.k.nbytes + cache.v.nbytes for cache in caches) // (now * room)
    return max(0, free // (token * answers))
""",
        praise=(
            "It works on the device meta, too: that is how to ask before you rent. A"
            " static cache takes this room from the first token on; servers give it out"
            " in small blocks, as answers grow."
        ),
    ),
    Exercise(
        number="17.1",
        title="Read the question in pieces",
        name="prefill",
        stars=2,
        check=check_prefill,
        hints=[
            (
                "A piece needs its tokens, their places in the text, and a mask with a"
                " row for each token and a column for each seat."
            ),
            (
                "places = torch.arange(length).split(most) gives those of each piece,"
                " and tokens[:, at] its tokens. On which device are they made?"
            ),
            (
                "A token at place p sees the seats 0 to p, also those that earlier"
                " pieces have filled: seats <= at[:, None]."
            ),
        ],
        solution="""
def prefill(model, tokens, caches, most):
    seats = torch.arange(caches[0].k.shape[2], device=tokens.device)
    for at in seats[: tokens.shape[1]].split(most):
        logits = model(tokens[:, at], at, caches, seats <= at[:, None])
    return logits[:, -1]
""",
        praise=(
            "What a call holds grows with its tokens, logits among it: pieces lower the"
            " peak. And in or between them a server lets others say their next token:"
            " chunked prefill."
        ),
    ),
    Exercise(
        number="17.2",
        title="Stop without asking each time",
        name="until_end",
        stars=2,
        check=check_until_end,
        hints=[
            (
                "token == end is a tensor, and stays on the device. To fetch it is"
                " .item(), .tolist(), .cpu(), or an `if`."
            ),
            (
                "Keep a tensor that says who has finished: done = done | (token =="
                " end). Every `every` steps ask once: done.all()."
            ),
            (
                "Collect the tokens in a list; behind the loop torch.cat(said,"
                " dim=1).tolist(), and cut each row at row.index(end)."
            ),
        ],
        solution="""
def until_end(step, end, most, every):
    token, said, done = None, [], False
    for n in range(1, most + 1):
        token = step(token)
        said.append(token)
        done = (token == end) | done
        if n % every == 0 and done.all():
            break
    rows = torch.cat(said, dim=1).tolist()
    return [row[: row.index(end)] if end in row else row for row in rows]
""",
        praise=(
            "It may compute every - 1 steps too many, and waits once in that time. In"
            " between, the host launches ahead of the device."
        ),
    ),
    Exercise(
        number="17.3",
        title="What is the least that a step takes?",
        name="least_seconds",
        stars=2,
        check=check_least_seconds,
        hints=[
            (
                "Two times: bytes that are read, over bandwidth; operations, over"
                " flops. The longer one counts."
            ),
            (
                "Read are the weights, once, and the cache of each answer: answers ·"
                " tokens · 2 · layers · KV heads · size numbers."
            ),
            'max((read, "memory"), (work, "compute")) is the longer, with its word.',
        ],
        solution="""
def least_seconds(config, bytes_each, answers, tokens, bandwidth, flops):
    token = 2 * config["layers"] * config["kv_heads"] * config["size"]
    numbers = config["weights"] + answers * tokens * token
    read = numbers * bytes_each / bandwidth
    work = 2 * config["weights"] * answers / flops
    return max((read, "memory"), (work, "compute"))
""",
        praise=(
            "While caches are short, computing takes over from bytes_each / 2 · flops /"
            " bandwidth answers on. With long ones it may never do so: each answer"
            " brings bytes of its own."
        ),
    ),
    Exercise(
        number="17.4",
        title="Weights that come in time",
        name="stream",
        stars=3,
        check=check_stream,
        hints=[
            (
                "Number the computing of all passes: 0, 1, 2, … Which layer does number"
                " n need, and which slot was not used by the one before?"
            ),
            (
                "Layer n % layers, slot n % 2. Two waits for each: compute n for fetch"
                " n, and fetch n for the one that has read its slot, n - 2."
            ),
            (
                "done = [None, None] keeps the last compute of each slot. Before the"
                ' fetch, from n = 2 on, comes wait("copier", done[n % 2]); before the'
                ' compute wait("worker", …).'
            ),
        ],
        solution="""
def stream(layers, passes, fetch, compute, wait):
    done = [None, None]
    for n in range(layers * passes):
        slot = n % 2
        if n > 1:
            wait("copier", done[slot])
        wait("worker", fetch(n % layers, slot))
        done[slot] = compute(slot)
""",
        praise=(
            "The first layer of the next pass comes while this token is still being"
            " computed: without experts, no token decides which weights are next."
            " Copies and computing overlap, so the slower of the two sets the time."
        ),
    ),
]
