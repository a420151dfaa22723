"""What to do about a wait: by the place in a library, else by the line, kind and
operation.
"""

import re

CAUSES = {
    "value": "a value is read",
    "size": "the size depends on values",
    "to the host": "copied to the host",
    "to the device": "blocking copy",
    "asked for": "only a clock needs it",
    "else": "CUDA reports a wait, and no rule knows why",
}
INSIDE = "an argument of the library may avoid it, or fewer calls"
NEVER = "no form of it avoids that: call it every n steps"
NEVER_VALUES = "eig", "eigh", "lstsq", "matrix_exp", "pinv", "svd"
NEVER_SIZES = "unique", "unique_dim", "unique_consecutive", "unique_dim_consecutive"
ONCE = "make it once, before the loop; torch.full((), 1.0, device=device) does not wait"
STACK = "torch.stack keeps them on the device"
SCALER = "an optimizer with fused=True, or bfloat16, which needs no scaler"
BRANCH = "Python branches on it; torch.where does not, or ask every n steps"
BRANCHES = r"assert\b|(if|elif|while)\b[^#]*:\s*(#.*)?$"  # not: if n == 0: print(loss)
BRANCHED = "item", "is_nonzero", "equal", "allclose"
MASK = "is_causal=True beside the mask, in a decoder tgt_is_causal=True"

# kind → operation → cure; "" stands for the others
OPERATIONS = {
    "value": {
        "": "keep it on the device, read it every n steps",
        "allclose": "torch.isclose(a, b).all() stays on the device",
        "equal": "(a == b).all() stays on the device",
        "histc": "give it min and max",
        "index": "i[None] is not read as an index; for slices use Python's numbers",
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
    "to the host": {"": "once at the end, or non_blocking and pinned"},
    "to the device": {
        "": "pin it, non_blocking=True; or make it there",
        "as_tensor": ONCE,
        "asarray": ONCE,
        "ctc_loss": NEVER,
        "index": "make the index once, or there: torch.randperm(n, device=device)",
        "index_put": "make index or number once, or there, as tensors on the device",
        "new_tensor": ONCE,
        "tensor": ONCE,
        "where": "a number of Python instead of the host's tensor",
    },
}
# "file function: line operation" → the library's argument. Looked up in PyTorch 2.13,
# transformers 5.24, accelerate 1.15, ema-pytorch 0.8.3, torchmetrics 1.9
LIBRARIES = {
    "torch/nn/modules/transformer.py _detect_is_causal_mask:": MASK,
    "torch/nn/utils/clip_grad.py .*nonfinite": "without error_if_nonfinite=True",
    "torch/distributions/distribution.py .*valid": "validate_args=False",
    "torch/amp/grad_scaler.py _maybe_opt_step:": SCALER,
    "torch/amp/grad_scaler.py get_scale:": OPERATIONS["value"][""],
    "torch/optim/(asgd|[nr]?adam|adamax|adadelta|r(ms)?prop).py": "capturable=True",
    "torch/optim/swa_utils.py update_parameters:": "call it every n steps",
    "torch/autograd/graph.py .* item$": "torch.autograd.set_detect_anomaly(False)",
    "transformers/masking_utils.py": "a 4-D attention_mask is not read",
    "transformers/trainer.py .*(if \\(|isnan.*) item$": "logging_nan_inf_filter=False",
    "accelerate/utils/operations.py send_to_device:": (
        "non_blocking=True for DataLoaderConfiguration (of a transformers Trainer:"
        " accelerator_config), and pin_memory=True"
    ),
    "ema_pytorch/ema_pytorch.py": (
        "call update() every n steps, with update_every and update_after_step over n"
    ),
    "torchmetrics/.*_tensor_validation:": "validate_args=False",
    "torchmetrics/aggregation.py .*nans": 'nan_strategy="disable"',
}


def cure(
    operation: str, kind: str, calls: tuple[str, ...], inside: str, code: str = ""
) -> str:
    """calls: "file function: line" of the libraries below the reader's line, which is
    `code`; inside: the line of the one that works there.
    """
    for call in calls:
        for pattern, advice in LIBRARIES.items():
            if re.match(pattern, f"{call} {operation}"):
                return advice
    read = kind == "value" and operation in BRANCHED and not inside
    if read and re.match(BRANCHES, code):
        return BRANCH
    cures = OPERATIONS.get(kind, {"": ""})
    return INSIDE if inside and cures[""] else cures.get(operation, cures[""])
