"""Exercises of lesson 17."""

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.generation import OnGpu, Planned, Slots, TinyDecoder

# The numbers of Llama 3.1 8B and of Llama 2 7B, and two models of nobody.
LLAMA_3 = {
    "weights": 8_030_261_248,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "size": 128,
}
LLAMA_2 = {
    "weights": 6_738_415_616,
    "layers": 32,
    "heads": 32,
    "kv_heads": 32,
    "size": 128,
}
TINY = {"weights": 1_000, "layers": 2, "heads": 6, "kv_heads": 3, "size": 8}
DEEP = {"weights": 50_000, "layers": 7, "heads": 4, "kv_heads": 1, "size": 5}
NAMES = {8_030_261_248: "Llama 3.1 8B", 6_738_415_616: "Llama 2 7B"}
GIB = 2**30


def _model(config):
    return NAMES.get(config["weights"], f"config = {config}")


def _token(config, dtype, heads="kv_heads"):
    """Bytes that a token leaves in all caches."""
    numbers = 2 * config["layers"] * config[heads] * config["size"]
    return numbers * dtype.itemsize


# --------------------------------------------------------------------------------------
# 17.0

MEMORIES = [  # config, bytes, dtype, answers; what the case is about
    (LLAMA_3, 48 * GIB, torch.float32, 1, ""),
    (LLAMA_3, 24 * GIB, torch.bfloat16, 4, ""),
    (LLAMA_3, 80 * 10**9, torch.float8_e4m3fn, 7, ""),
    (LLAMA_2, 16 * GIB, torch.float16, 3, ""),
    (LLAMA_3, 16 * GIB, torch.float32, 2, "the weights alone do not fit"),
    (TINY, 4_000 + 3 * 384 - 1, torch.float32, 3, "one byte is missing for a token"),
    (TINY, 4_000 + 15 * 384, torch.float32, 3, "five tokens each fill it to the byte"),
    (TINY, 4_000, torch.float32, 1, "the weights fill all of it"),
    (DEEP, 10**6, torch.int8, 10, ""),
    (DEEP, 10**6, torch.float64, 1, ""),
]


def check_tokens_that_fit(answer):
    for config, memory, dtype, answers, about in MEMORIES:
        shown = f"{_model(config)}, {memory:,} bytes, {dtype}, answers={answers}"
        got = call(answer, config, memory, dtype, answers, shown=shown)
        got = expect.number(got, shown, "a whole number")
        weights, token = config["weights"] * dtype.itemsize, _token(config, dtype)
        free = max(0, memory - weights)
        slips = [
            (free / token / answers, "whole tokens: // in place of /"),
            (free / (token * answers), "whole tokens: // in place of /"),
            (free // (token // 2) // answers, "a token leaves a key and a value"),
            (
                free // _token(config, dtype, "heads") // answers,
                "the cache has kv_heads heads; only queries have all",
            ),
            (free // (token // config["layers"]) // answers, "each layer has a cache"),
            (free // token, "each answer has a cache of its own"),
            (
                (memory - config["weights"]) // token // answers,
                "a weight takes dtype.itemsize bytes",
            ),
            (memory // token // answers, "the weights take up memory, too"),
            (
                free // (token // dtype.itemsize) // answers,
                "a number in the cache takes dtype.itemsize bytes",
            ),
        ]
        expected = free // token // answers
        why = about
        if got < 0:
            why = "there are no fewer than 0 tokens"
        elif got != expected:
            why = next((text for value, text in slips if got == value), about)
        expect.equal(got, expected, shown, why)


# --------------------------------------------------------------------------------------
# 17.1

H100, A100, SLOW = (3.35e12, 989e12), (1.555e12, 312e12), (100.0, 1_000.0)
STEPS = [  # config, dtype, answers, tokens of each, bytes/s and operations/s
    (LLAMA_3, torch.bfloat16, 1, 100, *H100),
    (LLAMA_3, torch.bfloat16, 64, 100, *H100),
    (LLAMA_3, torch.bfloat16, 2_000, 100, *H100),
    (LLAMA_3, torch.bfloat16, 400, 1, *H100),
    (LLAMA_3, torch.bfloat16, 400, 8_000, *H100),
    (LLAMA_3, torch.float8_e4m3fn, 200, 10, *H100),
    (LLAMA_2, torch.float16, 16, 2_000, *A100),
    (LLAMA_2, torch.float16, 256, 0, *A100),
    (TINY, torch.float32, 13, 3, *SLOW),
    (DEEP, torch.float64, 42, 1, *SLOW),
    (DEEP, torch.float64, 43, 1, *SLOW),
]
WORDS = "memory", "compute"


def check_step_limit(answer):
    for config, dtype, answers, context, bandwidth, rate in STEPS:
        shown = (
            f"{_model(config)}, {dtype}, {answers} answers of {context:,} tokens,"
            f" {bandwidth:g} bytes/s, {rate:g} operations/s"
        )
        given = config, dtype, answers, context, bandwidth, rate
        seconds, word = _seconds_and_word(call(answer, *given, shown=shown), shown)
        weights = config["weights"] * dtype.itemsize
        cache = context * _token(config, dtype)
        read = (weights + answers * cache) / bandwidth
        work = 2 * config["weights"] * answers / rate
        expected = max(read, work)
        slips = [
            (read + work, "reading and computing go on at once: the longer one counts"),
            (
                max(answers * (weights + cache) / bandwidth, work),
                "the weights are read once for all answers",
            ),
            (
                max((weights + cache) / bandwidth, work),
                "each answer reads a cache of its own",
            ),
            (
                max(weights / bandwidth, work),
                "the caches are read, too",
            ),
            (
                max(read, work / 2),
                "a weight is multiplied and added: two operations an answer",
            ),
            (
                max((config["weights"] + answers * cache) / bandwidth, work),
                "a weight takes dtype.itemsize bytes",
            ),
        ]
        why = f"reading takes {read:.4g} s, computing {work:.4g} s"
        slips.append((min(read, work), f"{why}: the longer of the two counts"))
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
            "What is free beside the weights? What does a token leave, in bytes?",
            (
                "A token leaves a key and a value in each layer, with kv_heads · size"
                " numbers each; a number takes dtype.itemsize bytes."
            ),
            (
                'free = memory - config["weights"] * dtype.itemsize. Divide by the'
                " bytes of a token and by the answers, with //; max(0, …)."
            ),
        ],
        solution="""
def tokens_that_fit(config, memory, dtype, answers):
    free = memory - config["weights"] * dtype.itemsize
    numbers = 2 * config["layers"] * config["kv_heads"] * config["size"]
    return max(0, free // (numbers * dtype.itemsize * answers))
""",
        praise=(
            "A static cache takes this room from the first token on, whatever is said."
            " Servers give it out in small blocks, as answers grow."
        ),
    ),
    Exercise(
        number="17.1",
        title="What is the least that a step takes?",
        name="step_limit",
        stars=2,
        check=check_step_limit,
        hints=[
            (
                "Two times: that of reading, in bytes over bytes per second, and that"
                " of computing, in operations over operations per second."
            ),
            (
                "Read are the weights, once, and the cache of each answer. Computed is"
                " with each weight for each answer."
            ),
            'max((read, "memory"), (work, "compute")) is the longer, with its word.',
        ],
        solution="""
def step_limit(config, dtype, answers, context, bandwidth, rate):
    numbers = 2 * config["layers"] * config["kv_heads"] * config["size"]
    held = config["weights"] + answers * context * numbers
    read = held * dtype.itemsize / bandwidth
    work = 2 * config["weights"] * answers / rate
    return max((read, "memory"), (work, "compute"))
""",
        praise=(
            "While the caches are short, more answers cost no time up to itemsize / 2 ·"
            " rate / bandwidth of them. With long ones reading stays the limit: each"
            " answer brings bytes of its own."
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
                "token == end is a tensor, and stays on the device. Only .item(),"
                " .tolist() or an `if` fetch it."
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
        title="Read the question in pieces",
        name="prefill",
        stars=3,
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
            "The scores of a piece are most × seats numbers, not length × seats. And"
            " between two pieces a server lets others say their next token: chunked"
            " prefill."
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
            " computed: which weights are next, no token decides. Copies and computing"
            " overlap, so the slower of the two sets the time."
        ),
    ),
]
