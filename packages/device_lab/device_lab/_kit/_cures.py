"""What to do about a wait: by the place in a library, else by the line, kind and
operation.
"""

import re

from ._lines import Place, forward_line

CAUSES = {
    "value": "a value is read",
    "size": "the size depends on values",
    "to the host": "copied to the host",
    "to the device": "blocking copy",
    "asked for": "only a clock needs it",
    "freed": "freeing waits for the device",
    "else": "CUDA reports a wait, and no rule knows why",
}
NEVER = "nothing is known to avoid it, but fewer calls"
NEVER_VALUES = "eig", "eigh", "lstsq", "matrix_exp", "pinv", "svd"
NEVER_SIZES = "unique", "unique_dim", "unique_consecutive", "unique_dim_consecutive"
ONCE = (
    "once before the loop, or tensor(list).pin_memory().to(device, non_blocking=True);"
    " of one number torch.full((), 1.0, device=device)"
)
INDEX = "make index or number once, or there, as tensors on the device"
STACK = "torch.stack keeps them on the device"
SCALER = "an optimizer with fused=True, or bfloat16, which needs no scaler"
BRANCH = "Python branches on it; torch.where does not, or ask every n steps"
BRANCHES = r"assert\b|(if|elif|while)\b[^#]*:\s*(#.*)?$"  # not: if n == 0: print(loss)
ACTION = "needed now: act on a CPU, or in more environments"
ACTIONS = r"\bactions?( = .*|(\.\w+\(\))*)\.(item|tolist|numpy|cpu)\("
BRANCHED = "item", "equal", "allclose"
COMPARE = "Python compares one by one: x.tolist() waits once, torch.max not at all"
COMPARES = r"(.*[^.\w])?(max|min|sorted)\("  # Python's
MASK = "is_causal=True beside the mask, in a decoder tgt_is_causal=True"

# kind → operation → cure; "" stands for the others
OPERATIONS = {
    "value": {
        "": "keep it on the device, read it every n steps",
        "allclose": "torch.isclose(a, b).all() stays on the device",
        "equal": "(a == b).all() stays on the device",
        "histc": "give it min and max",
        "index": "keep it as Python's number as well; x[i[None]] does not read i",
        "index_fill": "x[index] = value does not read it",
        "linalg_check_errors": "cholesky_ex, inv_ex, solve_ex do not check",
        "linspace": "a + (b - a) * torch.linspace(0, 1, n, device=device)",
        "logspace": "10 ** (a + (b - a) * torch.linspace(0, 1, n, device=device))",
        "masked_fill": "torch.where(mask, value, x) does not read it",
        "new_tensor": STACK,
        "normal": "mean + std * torch.randn_like(std) does not check",
        "one_hot": "say how many: F.one_hot(labels, n)",
        "print": "every n steps",
        "tensor": STACK,
        **{f"linalg_{name}": NEVER for name in NEVER_VALUES},
    },
    "size": {
        "": "torch.where(mask, a, b) keeps it",
        "bincount": "zeros(n).index_add_(0, x, ones) keeps it at n",
        "repeat_interleave": "give it output_size",
        **dict.fromkeys(NEVER_SIZES, NEVER),
    },
    "to the host": {"": "collect there, copy once; what is needed now has to wait"},
    "freed": {"": "leave it out, PyTorch uses the memory again"},
    "to the device": {
        "": "pin it, non_blocking=True; or make it there",
        "as_tensor": ONCE,
        "asarray": ONCE,
        "ctc_loss": NEVER,
        "index": INDEX,
        "index_put": INDEX,
        "new_tensor": ONCE,
        "tensor": ONCE,
        "where": "a number of Python instead of the host's tensor",
    },
}
# "file function: line operation" → the library's argument. Looked up in PyTorch 2.13,
# transformers 5.24, accelerate 1.15, ema-pytorch 0.8.3, torchmetrics 1.9,
# torch-geometric 2.8, lightning 2.6
LIBRARIES = {
    "torch/nn/parallel/distributed.py .*_rebuild_buckets": None,  # in step 2 alone
    "torch/nn/modules/transformer.py _detect_is_causal_mask:": MASK,
    "torch/nn/utils/clip_grad.py .*nonfinite": "without error_if_nonfinite=True",
    "torch/distributions/distribution.py .*valid": "validate_args=False",
    "torch/amp/grad_scaler.py _maybe_opt_step:": SCALER,
    "torch/optim/(asgd|[nr]?adam|adamax|adadelta|r(ms)?prop).py": "capturable=True",
    "torch/autograd/graph.py .* item$": "torch.autograd.set_detect_anomaly(False)",
    "lightning.fabric/.*apply_func.* item$": "log(prog_bar=False)",
    "transformers/masking_utils.py": "give it a 4-D attention_mask",
    "transformers/trainer.py .*(if \\(|isnan.*) bool$": "logging_nan_inf_filter=False",
    "accelerate/utils/operations.py send_to_device:": (
        "non_blocking=True for DataLoaderConfiguration (of a transformers Trainer:"
        " accelerator_config), and pin_memory=True"
    ),
    "ema_pytorch/ema_pytorch.py": (
        "call update() every n steps, with update_every and update_after_step over n"
    ),
    "torchmetrics/.*_tensor_validation:": "validate_args=False",
    "torchmetrics/aggregation.py .*nans": 'nan_strategy="disable"',
    "torch_geometric/nn/pool/glob.py .*dim_size=size": "size=, the number of graphs",
    ".*non_blocking=non_blocking": "non_blocking=True in the call, and pin_memory=True",
}


def cure(operation: str, kind: str, at: Place) -> str | None:
    """None if it is no wait of a usual step."""
    for pattern, advice in LIBRARIES.items():  # what fits many stands last
        for call in at.calls:
            if re.match(pattern, f"{call} {operation}"):
                return advice
    cures = OPERATIONS.get(kind, {"": ""})
    advice = cures.get(operation, cures[""])
    if at.inside and kind == "value" and operation not in cures:
        return NEVER
    if at.inside and advice not in ("", NEVER):
        return f"for the library's line: {advice}"
    line = forward_line(at)
    if line and advice:
        return f"in the backward of {line}: {advice}"
    if operation == "bool":
        return COMPARE if re.match(COMPARES, at.code) else BRANCH
    if kind in ("value", "to the host") and re.search(ACTIONS, at.code):
        return ACTION
    branches = kind == "value" and operation in BRANCHED
    return BRANCH if branches and re.match(BRANCHES, at.code) else advice


def pinned(advice: str) -> str:
    """If the loader pins."""
    advice = advice.replace("pin it,", "it is pinned:")
    return advice.removesuffix(", and pin_memory=True")
