"""The Python part of the emulated CUDA device, loaded after `import torch` by
site/sitecustomize.py.

It loads the operators that compute on the CPU what CUDA's kernels would, and replaces
what needs a real GPU: NCCL between processes by Gloo, Triton by PyTorch's operators.
"""

import contextlib
import functools
import importlib.util
import inspect
import os
import pathlib
import sys


def install():
    import torch

    library = pathlib.Path(os.environ["EMULATOR_FOLDER"]) / "emulator_operators.so"
    spec = importlib.util.spec_from_file_location("emulator_operators", library)
    operators = importlib.util.module_from_spec(spec)
    with _silent_stderr():  # PyTorch says there that kernels are overridden
        spec.loader.exec_module(operators)
        operators.install()
    _gloo_for_nccl()
    _aot_eager_for_triton(torch)
    _operators_for_fused_code(torch)


@contextlib.contextmanager
def _silent_stderr():
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nothing)


def _gloo_for_nccl():
    """Let Gloo do what is asked of NCCL: it moves CUDA tensors through pinned memory,
    with the right results.
    """
    import torch.distributed as dist

    if not dist.is_available():
        return
    # Modules of PyTorch have these functions under their own names (DeviceMesh).
    modules = [module for name, module in sys.modules.items() if "distributed" in name]
    for original in (dist.init_process_group, dist.new_group):
        for module in modules:
            if getattr(module, original.__name__, None) is original:
                setattr(module, original.__name__, _with_gloo(original))


def _with_gloo(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        # starts NCCL's communicator at once, which Gloo refuses
        given.pop("device_id", None)
        if given.get("backend") is not None:
            given["backend"] = str(given["backend"]).replace("nccl", "gloo")
        elif original.__name__ == "init_process_group":
            given["backend"] = "gloo"
        return original(**given)

    return call


def _aot_eager_for_triton(torch):
    """Let torch.compile run the traced graph of a CUDA model operator by operator:
    right values, no fusion, no Triton.

    In the modes that record CUDA graphs ("reduce-overhead") PyTorch's backend
    "cudagraphs" does that. The environment variable EMULATOR_TRITON lets Inductor write
    Triton kernels, whose launches do nothing.
    """
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def call(self, model, inputs):
        parts = [*inputs, *model.parameters(), *model.buffers()]
        # and what the graph itself makes, as torch.ones(3, device="cuda")
        parts += [node.meta.get("example_value") for node in model.graph.nodes]
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in parts)
        if not on_gpu or os.environ.get("EMULATOR_TRITON"):
            return original(self, model, inputs)
        graphs = self.config.get("triton.cudagraphs")
        backend = torch._dynamo.lookup_backend("cudagraphs" if graphs else "aot_eager")
        return backend(model, inputs)

    wrapper.__call__ = call


def _operators_for_fused_code(torch):
    """Let PyTorch run operator by operator what it would else compile at run time
    (torch.jit's fuser) or do in one kernel (cuDNN's recurrent layers, the fast path of
    nn.TransformerEncoder).
    """
    torch._C._jit_override_can_fuse_on_gpu(False)
    torch._use_cudnn_rnn_flatten_weight = lambda: False
    torch.backends.mha.set_fastpath_enabled(False)
