"""What mends a message, where no row of lesson 16 says it, or where a section says it
better.
"""

from typing import NamedTuple


class Cure(NamedTuple):
    """words: a part of the message. text: cause and cure, in Markdown. place: number of
    the lesson and id of the cell that mends it.
    """

    words: str
    text: str
    place: tuple[str, str]
    often: bool = False


CURES = [
    Cure(
        "Expected all tensors to be on the same device",
        "One operation got tensors of two devices, such as “found at least two devices,"
        " cuda:0 and cpu!”; nothing is moved unasked. Move what stayed behind, and keep"
        " the result: `x = x.to(device)`.",
        ("02", "cure"),
        often=True,
    ),
    Cure(
        "is not on the expected device",
        "A tensor stayed behind, or the result of `.to()` was thrown away: of a tensor"
        " it is a new one. Write `x = x.to(device)`.",
        ("02", "cure"),
        often=True,
    ),
    Cure(
        "CUDA out of memory",
        "More is needed at once than is free. First let go of what old steps hold"
        " (`total += loss.item()`, not `total += loss`); then take the batch in smaller"
        " pieces, and add up their gradients.",
        ("07", "remedies"),
        often=True,
    ),
    Cure(
        "simulated GPU out of memory",
        "As “CUDA out of memory”: let go of old results, then take smaller pieces of"
        " the batch.",
        ("07", "remedies"),
    ),
    Cure(
        "alloc_cpu.cpp",
        "The host has less memory than one tensor asks for. Look at its shape: often a"
        " dimension is wrong. Else work in pieces.",
        ("07", "remedies"),
        often=True,
    ),
    Cure(
        "Torch not compiled with CUDA enabled",
        "This is a CPU build of PyTorch, whatever GPU is there. Install a CUDA build,"
        " or let the program take the device that is there.",
        ("01", "versions-text"),
        often=True,
    ),
    Cure(
        "PyTorch is not linked with support for mps",
        "This build of PyTorch has no code for that device. Install one that has, or"
        " let the program take the device that is there.",
        ("01", "pick"),
    ),
    Cure(
        "_cuda_setDevice",
        "A CPU build of PyTorch has no CUDA device to choose. Let the program take the"
        " device that is there.",
        ("01", "pick"),
    ),
    Cure(
        "Tensor.item() cannot be called on meta tensors",
        "A meta tensor has a shape and no numbers, so a line that needs a value fails."
        " On a GPU the same line waits.",
        ("02", "no-value"),
    ),
    Cure(
        "device type for generator but found",
        "A random generator belongs to one device. Make it there:"
        " `torch.Generator(device=device)`.",
        ("02", "default"),
    ),
    Cure(
        "'Luggage' object has no attribute 'device'",
        "A module has no device: its parameters have one each. Ask one:"
        " `next(model.parameters()).device`.",
        ("03", "devices-of-text"),
    ),
    Cure(
        "Cannot copy out of meta tensor",
        "There are no numbers to copy. Give the module memory with `to_empty`, then"
        " fill it from a file.",
        ("03", "to-empty-after"),
    ),
    Cure(
        "Weights only load failed",
        "Since 2.6 `torch.load` runs no code from a file. Save and load a `state_dict`;"
        " `weights_only=False` only for a file that you trust.",
        ("03", "trap-text"),
        often=True,
    ),
    Cure(
        "RNG state must be a torch.ByteTensor",
        "`map_location` moved the random state, too. Load it on the CPU.",
        ("03", "rng-device"),
    ),
    Cure(
        "Can't get attribute",
        "A new process imports the main module, and a notebook is none: put the class"
        " or function into a file, and import it.",
        ("06", "spawn"),
    ),
    Cure(
        "Cannot re-initialize CUDA in forked subprocess",
        "A forked worker cannot use CUDA. Let workers return CPU tensors, and move the"
        " batch in the main process.",
        ("06", "cuda-in-fork"),
        often=True,
    ),
    Cure(
        "pin_memory=True requires",
        "Pinned memory is for a device that copies from it: ask for it only where there"
        " is one.",
        ("06", "pin"),
    ),
    Cure(
        "prefetch_factor option",
        "Only workers fetch ahead: set `num_workers` above 0, or leave it out.",
        ("06", "rules"),
    ),
    Cure(
        "binary_cross_entropy and torch.nn.BCELoss",
        "Under autocast this loss is unsafe in float16. Leave out the sigmoid, and take"
        " `binary_cross_entropy_with_logits`.",
        ("08", "bce"),
    ),
    Cure(
        "step() has already been called",
        "`scaler.step` was called twice without `scaler.update()`. Call `update` once,"
        " at the end of each step.",
        ("08", "order"),
    ),
    Cure(
        "Profiler must be initialized",
        "No step was recorded. Call `step()` on the profiler in each step of the loop,"
        " or leave out the schedule.",
        ("09", "no-step"),
    ),
    Cure(
        "Data-dependent branching",
        "The compiler knows shapes and types, no numbers. Write the choice with"
        " `torch.where` or `torch.cond`, or let the graph break there.",
        ("10", "fullgraph"),
    ),
    Cure(
        "Expected to have finished reduction",
        "A parameter got no gradient in this step. Use all of them, or pass"
        " `find_unused_parameters=True`.",
        ("11", "hooks-text"),
    ),
    Cure(
        "process 0 terminated with exit code 1",
        "A process that was started from a notebook cannot import what a cell defines."
        " Put the function into a file.",
        ("11", "ways"),
    ),
    Cure(
        "failed to pass monitoredBarrier",
        "These ranks have not come to the barrier in time: look there for what hangs.",
        ("12", "hang-job"),
    ),
    Cure(
        "failed finding central",
        "The file is not whole, as after a crash while saving. Write to another name,"
        " then rename.",
        ("12", "load-broken"),
    ),
    Cure(
        "No module named 'torch_xla'",
        "The package for TPUs is not installed here: take the versions that fit.",
        ("13", "child"),
    ),
    Cure(
        "Runtime is already initialized",
        "The notebook has used the TPU already. Restart its kernel, and launch first.",
        ("14", "launch-late"),
    ),
]


def cure_of(message):
    """The Cure of a message (its text), or None."""
    words = " ".join(message.split())
    return next((cure for cure in CURES if cure.words in words), None)
