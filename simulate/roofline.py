"""How fast could it be? The roofline, and floating-point operations of a transformer.

Lesson 09 explains both. All figures of devices come from utils.hardware.DEVICE_TABLE or
from a measurement.
"""


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """Most TFLOP/s that work of this arithmetic intensity can reach.

    intensity: floating-point operations for each byte moved. peak: TFLOP/s. bandwidth:
    GB/s. Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual
    Performance Model" (Communications of the ACM 52(4), 2009).
    """
    return min(peak, intensity * bandwidth / 1000)


def ridge(peak: float, bandwidth: float) -> float:
    """The arithmetic intensity, FLOP/byte, from which on the peak is in reach. peak:
    TFLOP/s. bandwidth: GB/s.
    """
    return 1000 * peak / bandwidth


def product_intensity(m: int, n: int, k: int, bytes_each: int) -> float:
    """FLOP/byte of a product (m × k) @ (k × n) that reads both factors and writes the
    result once, with so many bytes a number.
    """
    return 2 * m * n * k / (bytes_each * (m * k + k * n + m * n))


def transformer_flops(
    layers: int,
    hidden: int,
    sequence: int,
    batch: int,
    vocabulary: int = 0,
    *,
    recompute: str = "none",
) -> float:
    """Floating-point operations of one training step (forward and backward) of a
    transformer.

    layers, hidden: how many blocks, and their width
    sequence, batch: tokens in a sample, samples
    vocabulary: of the head; 0 for none
    recompute: "none" counts what the model needs (for MFU); "selective" adds what the
        device does besides when attention is recomputed (for HFU)

    Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
    Models" (2022): 72 B L s h² (1 + s/6h + v/12hL), with s/3h for "selective".
    """
    attention = sequence / ({"none": 6, "selective": 3}[recompute] * hidden)
    head = vocabulary / (12 * hidden * layers)
    return 72 * batch * layers * sequence * hidden**2 * (1 + attention + head)
