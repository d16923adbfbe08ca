"""What `auto` means, and what is refused."""

from __future__ import annotations

import pytest
import torch

from dragonet.errors import ModelError
from dragonet.models import device as device_module
from dragonet.models import pick_device, pick_dtype


def test_auto_is_the_best_device_there_is() -> None:
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert pick_device("auto") == torch.device(best)
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")


def test_unknown_and_absent_devices() -> None:
    with pytest.raises(ModelError, match="did you mean 'cuda'"):
        pick_device("cudaa")
    with pytest.raises(ModelError, match="unknown device 'cuda:x'"):
        pick_device("cuda:x")
    with pytest.raises(ModelError, match=r"torch sees .* CUDA devices"):
        pick_device("cuda:99")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"avx2"}, torch.float32),
        ({"avx512_bf16"}, torch.bfloat16),
        ({"amx_bf16"}, torch.bfloat16),
        (set(), torch.float32),
    ],
)
def test_bfloat16_on_a_cpu_only_where_it_computes_in_it(
    flags: set[str], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_cpu_flags", lambda: frozenset(flags))
    assert pick_dtype("auto", "cpu") == expected


def test_flags_of_this_processor_are_read_once_from_the_system() -> None:
    assert device_module._cpu_flags() is device_module._cpu_flags()


def test_dtype_names() -> None:
    assert pick_dtype("bf16", "cpu") == pick_dtype("bfloat16", "cpu") == torch.bfloat16
    assert pick_dtype("float64", "cpu") == pick_dtype(torch.float64, "cpu") == torch.float64
    with pytest.raises(ModelError, match="did you mean 'float32'"):
        pick_dtype("float23", "cpu")
    with pytest.raises(ModelError, match="does not exist on mps"):
        pick_dtype("float64", "mps")
