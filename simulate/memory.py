"""How much memory will training take? A rehearsal without memory, and the published
formulas.

`rehearse` runs a step on tensors without data (FakeTensorMode) and lets PyTorch's
MemTracker count. The formulas give bytes; sources stand with each. Lesson 07 derives
the formula for a block and compares the two.
"""

from collections.abc import Callable

import torch

from device_lab import LabError

KINDS = ["parameters", "gradients", "optimizer", "activations", "other"]


def rehearse(make: Callable, step: Callable) -> dict[str, dict[str, int]]:
    """Bytes that one training step holds, by kind, without allocating them.

    make: function without arguments that returns (model, optimizer). step: function
    (model, optimizer, mark) that runs one training step on CPU tensors and calls
    mark(name) where it wants the state noted. Both run on tensors without data: nothing
    in them may depend on a value. Returns {name: {kind: bytes, …, "total": bytes}} for
    the second step (in the first, the optimizer has no state yet), with "peak" for the
    moment of the highest total.

    Counted by torch.distributed._tools.mem_tracker.MemTracker, which is private: this
    is the only place that uses it. Where a PyTorch has it no longer, the ImportError
    names it (in a notebook that ends the cell, not the lesson).
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    states = {}
    with FakeTensorMode():
        model, optimizer = make()
        step(model, optimizer, lambda name: None)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)

        def mark(name):
            states[name] = _kinds(tracker, "current")

        with tracker:
            step(model, optimizer, mark)
            states["peak"] = _kinds(tracker, "peak")
    return states


def _kinds(tracker, moment):
    names = {
        "Parameter": "parameters",
        "Gradient": "gradients",
        "Optstate": "optimizer",
        "Activation": "activations",
    }
    state = dict.fromkeys(KINDS, 0)
    counts = tracker.get_tracker_snapshot(moment).get(torch.device("cpu"), {})
    for kind, count in counts.items():
        if kind != "Total":
            state[names.get(kind.value, "other")] += count
    return {**state, "total": sum(state.values())}


# --------------------------------------------------------------------------------------
# Closed forms


# Bytes that a block saves for each token and channel: 16 values, which are the inputs
# of two layer norms, input of the QKV product, Q, K, V, input of the output product,
# input of the feed-forward part, four before the GELU and four after. Autocast keeps
# the layer norms' inputs in fp32.
SAVED = {"fp32": 64, "autocast": 36}
PHASES = "start of the backward pass", "end of the backward pass", "optimizer step"
STATES = {"adamw": 8, "momentum": 4, "sgd": 0}  # bytes a parameter


def training_step(
    layers: int,
    hidden: int,
    sequence: int,
    batch: int,
    *,
    vocabulary: int = 0,
    precision: str = "fp32",
    optimizer: str = "adamw",
    checkpointing: bool = False,
) -> dict[str, dict[str, int]]:
    """Bytes that a training step of a transformer holds, by phase and kind, as
    `rehearse` gives them. The peak is the phase with the highest total.

    layers: blocks (attention by scaled_dot_product_attention, feed-forward part four
        times as wide, GELU, no dropout)
    hidden: width of a block
    sequence, batch: tokens in a sample, samples
    vocabulary: with it, there is also an embedding, a last layer norm, a head that
        shares the embedding's weights, and cross-entropy
    precision: "fp32", or "autocast" for torch.autocast to a 16-bit type
    optimizer: "adamw", "momentum" or "sgd", on all parameters at once, as by default on
        CUDA (`foreach`): AdamW then needs one more copy; LabError for others
    checkpointing: each block recomputed
    """
    if optimizer not in STATES or precision not in SAVED:
        names = ", ".join(STATES)
        raise LabError(f"optimizer is one of {names}; precision is fp32 or autocast")
    half, count = precision == "autocast", parameters(layers, hidden, vocabulary)
    unit = sequence * batch * hidden  # values in the input of a block
    weights, states, block = 4 * count, STATES[optimizer] * count, SAVED[precision]
    copies = 2 * count if half else 0  # of the weights, until the backward pass
    saved = (4 if checkpointing else block) * unit * layers
    # log-probabilities and two gradients of that size, fp32
    loss = 12 * sequence * batch * vocabulary
    moving = max((14 if half else 24) * unit, loss)
    start = _phase(weights, 0, states, saved + copies, moving)
    end = _phase(weights, weights, states, 0, 0)
    if checkpointing:
        done, again, moving = _first_block_again(layers, half)
        again = again * unit + copies / layers
        end = _phase(weights, weights * done / layers, states, again, moving * unit)
    copy = weights if optimizer == "adamw" else 0
    step = _phase(weights, weights, states, 0, copy)
    return dict(zip(PHASES, (start, end, step), strict=True))


def _first_block_again(layers, half):
    """When the last block of the backward pass is recomputed: how many blocks have
    gradients; bytes of activations and on the way, for each token and channel.
    """
    return (layers - 1, 36 + 4, 18) if half else (layers - 2 / 3, 64 - 16 + 4, 36)


def _phase(*counts):
    counts = [round(count) for count in counts]
    return {**dict(zip(KINDS, counts, strict=True)), "total": sum(counts)}


def parameters(layers: int, hidden: int, vocabulary: int = 0) -> int:
    """Number of parameters of the transformer of `training_step`: 12h² + 13h a block,
    embedding, last layer norm.
    """
    blocks = layers * (12 * hidden**2 + 13 * hidden)
    return blocks + (vocabulary * hidden + 2 * hidden if vocabulary else 0)


def zero(parameters: float, gpus: int = 1, stage: int = 0) -> float:
    """Bytes on each GPU for parameters, gradients and Adam's states in mixed precision:
    16 a parameter on one GPU.

    2 for the 16-bit parameter, 2 for its gradient, 12 for fp32 parameter and two
    moments. stage 1 shares the last out over the GPUs, 2 also the gradients, 3 also the
    parameters. Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
    Trillion Parameter Models" (2020), section 3.
    """
    shared = {0: 0, 1: 12, 2: 14, 3: 16}[stage]
    return parameters * (16 - shared + shared / gpus)
