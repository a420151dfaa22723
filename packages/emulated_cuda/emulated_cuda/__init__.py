"""A CUDA device without a GPU: PyTorch's own CUDA code runs, and nothing below it is
real.

python -m emulated_cuda.run python script.py
"""

__version__ = "0.1.0"
