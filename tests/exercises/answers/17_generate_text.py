"""Answers to the exercises of lesson 17."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

FIT = SOLUTION["17.0"]
ANSWERS["17.0"] = Answers(
    right=[
        """
def tokens_that_fit(model, caches, memory, answers):
    for x in model.parameters():
        memory -= x.numel() * x.element_size()
    for x in model.buffers():
        memory -= x.numel() * x.element_size()
    token = 0
    for cache in caches:
        k, v = cache.k[0, :, 0], cache.v[0, :, 0]
        token += k.numel() * k.element_size() + v.numel() * v.element_size()
    if memory < 0:
        return 0
    return memory // token // answers
""",
        """
import math

def tokens_that_fit(model, caches, memory, answers):
    tensors = {id(x): x for x in model.state_dict(keep_vars=True).values()}
    free = memory - sum(x.nbytes for x in tensors.values())
    k = caches[-1].k
    held = 2 * len(caches) * k.shape[1] * k.shape[3] * k.dtype.itemsize
    return max(math.floor(free / (answers * held)), 0)
""",
    ],
    wrong={
        edit(FIT, (".k.nbytes + cache.v.nbytes", ".k.nbytes")): (
            "a token leaves a key and a value"
        ),
        edit(FIT, ("for cache in caches", "for cache in caches[:1]")): (
            "each layer has a cache"
        ),
        edit(FIT, ("(token * answers)", "token")): "each answer has a cache of its own",
        edit(FIT, ("(now * room)", "now")): "these caches have 16 seats",
        edit(FIT, ("(now * room)", "room")): "these caches are of 4 answers",
        edit(FIT, ("[*model.parameters(), *model.buffers()]", "model.parameters()")): (
            "buffers are weights, too"
        ),
        edit(
            FIT,
            (
                "[*model.parameters(), *model.buffers()]",
                "model.state_dict().values()",
            ),
        ): "tied weights are there once",
        edit(FIT, ("sum(x.nbytes for", "sum(x.numel() for")): (
            "weights in bytes, not in numbers"
        ),
        edit(FIT, ("max(0, free // (token * answers))", "free // (token * answers)")): (
            "0 where not even the weights fit"
        ),
        edit(
            FIT, ("free // (token", "free / (token")
        ): "whole tokens: // in place of /",
        edit(FIT, (" - sum(x.nbytes for x in weights)", "")): (
            "the weights take up memory, too"
        ),
    },
    equivalent={
        "weights = [*model.parameters(), *model.buffers()] → weights ="
        " [*model.buffers(), *model.parameters()]": "A sum has no order.",
        "token = sum((cache.k.nbytes + cache.v.nbytes for cache in caches)) // (now *"
        " room) → token = sum((cache.k.nbytes + cache.v.nbytes for cache in caches)) /"
        " (now * room)": "It comes out even.",
        "now, _, room, _ = caches[0].k.shape → now, _, room, _ = caches[1].k.shape": (
            "The caches of all layers have one shape."
        ),
    },
)

PREFILL = SOLUTION["17.1"]
PIECES = """
def prefill(model, tokens, caches, most):
    room = caches[0].k.shape[2]
    for first in range(0, tokens.shape[1], most):
        piece = tokens[:, first : first + most]
        at = torch.arange(first, first + piece.shape[1], device=piece.device)
        seats = torch.ones(len(at), room, dtype=torch.bool, device=piece.device)
        logits = model(piece, at, caches, seats.tril(first))
    return logits[:, -1]
"""
ANSWERS["17.1"] = Answers(
    right=[
        PIECES,
        """
def prefill(model, tokens, caches, most):
    length, room = tokens.shape[1], caches[0].k.shape[2]
    zeros = torch.zeros(length, room, dtype=torch.float64, device=tokens.device)
    mask = zeros.masked_fill(torch.ones_like(zeros).triu(1).bool(), -torch.inf)
    at = torch.arange(length).to(tokens.device)
    logits = None
    while len(at):
        part, at = at[:most], at[most:]
        logits = model(tokens.index_select(1, part), part, caches, mask[:most])
        mask = mask[most:]
    return logits.select(1, -1)
""",
    ],
    wrong={
        edit(PIECES, ("tril(first)", "tril()")): (
            "by which a token does not see itself"
        ),
        edit(PREFILL, ("seats <= at[:, None])", "None)")): (
            "got no mask, by which a token does not see itself"
        ),
        edit(PIECES, ("seats.tril(first)", "seats")): (
            "a token sees later ones of its own piece"
        ),
        edit(PREFILL, ("(tokens[:, at], at,", "(tokens[:, at], at - at[0],")): (
            "a token's place counts from the beginning of the text"
        ),
        edit(PREFILL, ("seats <= at", "seats < at")): "a token does not see itself",
        edit(PREFILL, ("split(most)", "split(10**6)")): "at most 4 are allowed",
        edit(PREFILL, ("split(most)", "split(1)")): "3 calls are enough",
        edit(PREFILL, ("split(most)", "chunk(most)")): "calls are enough",
        edit(
            PREFILL, ("seats <= at[:, None]", "(seats <= at[-1]).expand(len(at), -1)")
        ): ("a token sees later ones of its own piece"),
        edit(
            PREFILL,
            ("seats <= at[:, None]", "(seats <= at[:, None]) & (seats >= at[0])"),
        ): ("a token does not see all that stand before it"),
        edit(PREFILL, (", device=tokens.device", "")): (
            "on a GPU your function raised RuntimeError: Expected all tensors"
        ),
        edit(PIECES, (", device=piece.device)\n        logits", ")\n        logits")): (
            "on a GPU your function raised RuntimeError: Expected all tensors"
        ),
        edit(PREFILL, ("logits[:, -1]", "logits")): "the logits of the last token",
        edit(PREFILL, ("seats <= at[:, None]", "seats[: at[-1] + 1] <= at[:, None]")): (
            "a cache of 16 seats, expected (4, 16)"
        ),
    },
    equivalent={
        "seats = torch.arange(caches[0].k.shape[2], device=tokens.device) → seats ="
        " torch.arange(caches[1].k.shape[2], device=tokens.device)": (
            "The caches of all layers have the same room."
        ),
    },
)

UNTIL = SOLUTION["17.2"]
ANSWERS["17.2"] = Answers(
    right=[
        """
def until_end(step, end, most, every):
    said, token, rows = [], None, []
    while len(said) < most:
        for _ in range(min(every, most - len(said))):
            token = step(token)
            said.append(token)
        rows = torch.cat(said, dim=1).tolist()
        if all(end in row for row in rows):
            break
    return [(row + [end])[: (row + [end]).index(end)] for row in rows]
""",
        """
def until_end(step, end, most, every):
    said = step(None)
    open_ = said != end
    for n in range(1, most):
        if n % every == 0 and not open_.any().item():
            break
        token = torch.where(open_, step(said[:, -1:]), end)
        open_ = open_ & (token != end)
        said = torch.hstack([said, token])
    rows = []
    for row in said.cpu().numpy():
        rows.append([])
        for token in row:
            if token == end:
                break
            rows[-1].append(token)
    return rows
""",
        """
def until_end(step, end, most, every):
    token = step(None)
    said = torch.full((len(token), most), end, device=token.device)
    done = torch.zeros_like(token, dtype=torch.bool)
    for n in range(most):
        if n:
            token = step(token)
        token = token.masked_fill(done, end)
        said[:, n] = token[:, 0]
        done |= token == end
        if (n + 1) % every == 0 and bool(torch.all(done)):
            break
    return [[t for t in row if t != end] for row in said.tolist()]
""",
    ],
    wrong={
        edit(UNTIL, ("n % every == 0 and ", "")): "you fetched values",
        edit(UNTIL, ("done.all()", "done.any()")): "an answer was not finished",
        edit(UNTIL, (" | done", "")): "keep in mind who has said it in earlier steps",
        edit(UNTIL, ("n % every == 0 and done.all()", "False")): (
            "the answer to that is asked every 4 steps"
        ),
        edit(UNTIL, ("row[: row.index(end)] if end in row else row", "row")): (
            "cut each answer at its first 9"
        ),
        edit(UNTIL, ("row.index(end)]", "row.index(end) + 1]")): "before its first 9",
        edit(
            UNTIL, ("range(1, most + 1)", "range(most)")
        ): "you fetched values 3 times in 5 steps",
        edit(UNTIL, ("step(token)", "step(said[0] if said else None)")): (
            "each step takes what the one before returned"
        ),
        edit(
            UNTIL,
            ("None, [], False", "None, [], torch.zeros(1, 1, dtype=torch.bool)"),
        ): "Expected all tensors to be on the same device",
        edit(
            UNTIL, ("torch.cat(said, dim=1).tolist()", "[t.tolist() for t in said]")
        ): ("one every 4 steps, one at the end"),
    },
)

LEAST = SOLUTION["17.3"]
ANSWERS["17.3"] = Answers(
    right=[
        """
def bytes_a_token(layers, kv_heads, size, bytes_each):
    return 2 * layers * kv_heads * size * bytes_each

def least_seconds(config, bytes_each, answers, tokens, bandwidth, flops):
    sizes = [config[name] for name in ("layers", "kv_heads", "size")]
    memory = config["weights"] * bytes_each / bandwidth
    memory += answers * tokens * bytes_a_token(*sizes, bytes_each) / bandwidth
    compute = config["weights"] / flops * 2 * answers
    if memory > compute:
        return memory, "memory"
    return compute, "compute"
""",
        """
def least_seconds(config, bytes_each, answers, tokens, bandwidth, flops):
    cache = torch.Size([2, answers, config["layers"], config["kv_heads"], tokens])
    held = config["weights"] + cache.numel() * config["size"]
    seconds = {
        "compute": answers * 2 * config["weights"] / flops,
        "memory": held * bytes_each / bandwidth,
    }
    word = max(seconds, key=seconds.get)
    return [torch.tensor(seconds[word], dtype=torch.float64), word]
""",
    ],
    wrong={
        edit(
            LEAST,
            ("numbers * bytes_each", "answers * numbers * bytes_each"),
            ("answers * tokens", "tokens"),
        ): "the weights are read once for all answers",
        edit(LEAST, ("answers * tokens", "tokens")): (
            "each answer reads a cache of its own"
        ),
        edit(
            LEAST,
            ('max((read, "memory"), (work, "compute"))', "read + work, word"),
            (
                "    return",
                '    word = "memory" if read > work else "compute"\n    return',
            ),
        ): "the longer one counts",
        edit(LEAST, (" + answers * tokens * token", "")): "the caches are read, too",
        edit(LEAST, ('2 * config["weights"]', 'config["weights"]')): (
            "two operations a weight, for each answer"
        ),
        edit(LEAST, ('2 * config["layers"]', 'config["layers"]')): (
            "a token leaves a key and a value"
        ),
        edit(LEAST, ("kv_heads", "heads")): "only queries have all",
        edit(LEAST, ("numbers * bytes_each", "numbers")): (
            "a number takes bytes_each bytes"
        ),
        edit(LEAST, ("] * answers /", "] /")): "the longer of the two counts",
        edit(LEAST, ("max(", "min(")): "the longer of the two counts",
        edit(
            LEAST, ('(read, "memory"), (work, "compute")', '("x", read), ("y", work)')
        ): 'expected a pair: the seconds, and "memory" or "compute"',
        edit(LEAST, ('"compute"', '"memory"')): "right seconds, but you returned",
    },
)

STREAM = SOLUTION["17.4"]
NEVER_READ = "It is never read."
ANSWERS["17.4"] = Answers(
    right=[
        """
def stream(layers, passes, fetch, compute, wait):
    order = list(range(layers)) * passes
    there = fetch(order[0], 0)
    read = None
    for n in range(len(order)):
        wait("worker", there)
        slot = n % 2
        if n + 1 < len(order):
            if read is not None:
                wait("copier", read)
            there = fetch(order[n + 1], 1 - slot)
        read = compute(slot)
""",
        """
def stream(layers, passes, fetch, compute, wait):
    free, slot = {}, True
    for _ in range(passes):
        for layer in range(layers):
            slot = not slot
            for event in free.pop(slot, []):
                wait("copier", event)
            copied = fetch(layer, int(slot))
            wait("worker", copied)
            free[slot] = [compute(int(slot)), copied]
""",
    ],
    wrong={
        edit(
            STREAM, ('        if n > 1:\n            wait("copier", done[slot])\n', "")
        ): "may overwrite the slot that compute 0 still reads",
        edit(
            STREAM,
            ('wait("worker", fetch(n % layers, slot))', "fetch(n % layers, slot)"),
        ): "the worker must wait for the copy",
        edit(
            STREAM,
            ("slot = n % 2", "slot = n % layers % 2"),
            ("n > 1", "done[slot]"),
        ): "It goes into the slot of the fetch before",
        edit(STREAM, ("n > 1", "n"), ("done[slot])", "done[1 - slot])")): (
            "It waits for compute 0"
        ),
        edit(STREAM, ("slot = n % 2", "slot = 0"), ("n > 1", "n")): (
            "It goes into the slot of the fetch before"
        ),
        edit(STREAM, ("range(layers * passes)", "range(layers)")): (
            "compute number 6 works with nothing, expected layer 0"
        ),
        edit(
            STREAM, ('"copier", done', '"worker", done')
        ): "the copier must wait for it",
        """
def stream(layers, passes, fetch, compute, wait):
    wait("worker", fetch(0, 0))
    read = None
    for n in range(layers * passes):
        if read is not None:
            wait("copier", read)
        ahead = fetch((n + 1) % layers, (n + 1) % 2)
        read = compute(n % 2)
        wait("worker", ahead)
""": "and nobody computes with it",
        """
def stream(layers, passes, fetch, compute, wait):
    for _ in range(passes):
        done = [None, None]
        for layer in range(layers):
            if layer > 1:
                wait("copier", done[layer % 2])
            wait("worker", fetch(layer, layer % 2))
            done[layer % 2] = compute(layer % 2)
""": "may overwrite the slot",
    },
    equivalent={
        "done = [None, None] → done = [0, None]": NEVER_READ,
        "done = [None, None] → done = [None, 0]": NEVER_READ,
        "a global: done = [None, None]": "Both are written before they are read.",
    },
)
