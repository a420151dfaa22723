"""What lessons add to the kit's measurements: cold caches, the delay of a stream."""

import types

import pytest
import torch

from utils import timing


@pytest.mark.parametrize(("kind", "size"), [("cpu", 2**27), ("cuda", 100)])
def test_cold_overwrites_the_caches_before_each_sample(monkeypatch, kind, size):
    done = []

    def empty(count, dtype, device):
        assert dtype is torch.uint8 and device == kind
        return types.SimpleNamespace(zero_=lambda: done.append(count))

    def measured(functions, device, before=None, **options):
        for fn in functions.values():
            if before:
                before()
            done.append(fn())
        return {"fn": options}

    properties = types.SimpleNamespace(L2_cache_size=50)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(timing.timing, "measure_together", measured)
    assert timing.measure(lambda: "ours", kind, cold=True, n=9) == {"n": 9}
    assert timing.measure(lambda: "warm", kind) == {}
    assert done == [size, "ours", "warm"]


def test_cycles_of_a_delay_at_the_clock_of_now(monkeypatch):
    slept = []

    class Clock:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def seconds(self):
            return slept[-1] / 1.5e9

    monkeypatch.setattr(torch.cuda, "_sleep", slept.append)
    monkeypatch.setattr(timing, "device_clock", Clock)
    assert timing.sleep_cycles(20) == pytest.approx(0.020 * 1.5e9, rel=1e-6)
