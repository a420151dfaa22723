"""What to do about a wait: by the place in a library, by the operation, by its kind."""

import re

CAUSES = {
    "value": "a value is read",
    "size": "the size depends on values",
    "to the host": "copied to the host",
    "to the device": "blocking copy",
    "asked for": "only a clock needs it",
    "else": "CUDA reports a wait",
}
KINDS = {
    "value": "keep it on the device, read it every n steps",
    "size": "torch.where(mask, a, b) keeps it",
    "to the host": "once at the end, or non_blocking and pinned",
    "to the device": "pin it, non_blocking=True; or make it there",
    "asked for": "",
    "else": "no rule of find_waits knows the reason",
}
INSIDE = "an argument of the library may avoid it, or fewer calls"
NEVER = "no form of it avoids that: call it every n steps"
ONCE = "make it once, before the loop; torch.full((), 1.0, device=device) does not wait"
SCALER = "an optimizer with fused=True, or bfloat16, which needs no scaler"
LINALG = "torch.linalg's cholesky_ex, inv_ex, solve_ex do not check"

OPERATIONS = {
    ("allclose", "value"): "torch.isclose(a, b).all() stays on the device",
    ("as_tensor", "to the device"): ONCE,
    ("asarray", "to the device"): ONCE,
    ("bincount", "size"): "zeros(n).index_add_(0, x, ones) keeps it at n",
    ("ctc_loss", "to the device"): NEVER,
    ("equal", "value"): "(a == b).all() stays on the device",
    ("histc", "value"): "give it min and max",
    ("index", "to the device"): "make the index once, as a tensor on the device",
    (
        "index",
        "value",
    ): "i[None] is not read as an index; slices need numbers of Python",
    ("index_fill", "value"): "x[index] = value does not read it",
    (
        "index_put",
        "to the device",
    ): "make index or number once, as tensors on the device",
    ("linalg_check_errors", "value"): LINALG,
    ("linspace", "value"): "a + (b - a) * torch.linspace(0, 1, n, device=device)",
    ("masked_fill", "value"): "torch.where(mask, value, x) does not read it",
    ("new_tensor", "to the device"): ONCE,
    ("new_tensor", "value"): "torch.stack keeps them on the device",
    ("normal", "value"): "mean + std * torch.randn_like(std) does not check",
    ("one_hot", "value"): "say how many: F.one_hot(labels, n)",
    ("print", "value"): "every n steps",
    ("repeat_interleave", "size"): "give it output_size",
    ("tensor", "to the device"): ONCE,
    ("tensor", "value"): "torch.stack keeps them on the device",
    ("where", "to the device"): "a number of Python instead of the host's tensor",
    **{(f"unique{form}", "size"): NEVER for form in ("", "_dim", "_consecutive")},
    ("unique_dim_consecutive", "size"): NEVER,
    **{(f"linalg_{name}", "value"): NEVER for name in ("eig", "eigh", "svd", "lstsq")},
    **{(f"linalg_{name}", "value"): NEVER for name in ("matrix_exp", "pinv")},
}

# "file function: line operation" → the library's argument. Looked up in PyTorch 2.13,
# transformers 5.24, accelerate 1.15, ema-pytorch 0.8.3, torchmetrics 1.9
TRANSFORMER, MASKS = (
    "torch/nn/modules/transformer.py ",
    "is_causal=True beside the mask",
)
LIBRARIES = {
    TRANSFORMER + "_detect_is_causal_mask:": f"{MASKS}, tgt_is_causal in a decoder",
    TRANSFORMER + ".*_nested_tensor": "TransformerEncoder(enable_nested_tensor=False)",
    "torch/nn/utils/clip_grad.py .*nonfinite": "without error_if_nonfinite=True",
    "torch/distributions/distribution.py .*valid": "validate_args=False",
    "torch/amp/grad_scaler.py _maybe_opt_step:": SCALER,
    "torch/amp/grad_scaler.py get_scale:": KINDS["value"],
    "torch/optim/optimizer.py _get_value:": "capturable=True of the optimizer",
    "torch/optim/asgd.py": "capturable=True",
    "torch/optim/swa_utils.py update_parameters:": "call it every n steps",
    "torch/autograd/graph.py .* item$": "torch.autograd.set_detect_anomaly(False)",
    "transformers/masking_utils.py": "a 4-D attention_mask is not read",
    "transformers/trainer.py .*isnan\\(tr_loss": "logging_nan_inf_filter=False",
    "accelerate/utils/operations.py send_to_device:": (
        "DataLoaderConfiguration(non_blocking=True), and pin_memory=True"
    ),
    "ema_pytorch/ema_pytorch.py": "update() every n steps, with update_every=1",
    "torchmetrics/.*_tensor_validation:": "validate_args=False",
}


def cure(operation: str, kind: str, calls: tuple[str, ...], inside: str) -> str:
    """calls: "file function: line" of the libraries below the reader's line; inside:
    the line of the one that works there.
    """
    for call in calls:
        for pattern, advice in LIBRARIES.items():
            if re.match(pattern, f"{call} {operation}"):
                return advice
    if inside and kind not in ("asked for", "else"):
        return INSIDE
    return OPERATIONS.get((operation, kind), KINDS[kind])
