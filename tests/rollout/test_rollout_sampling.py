from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dragonet.errors import RolloutError
from dragonet.rollout.sampling import BLOCK, Sampler, check_sampling, invert, uniforms
from dragonet.types import Sampling

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
CHI2_BOUND = 30.0  # above the 0.9999 quantile for up to 6 degrees of freedom


def reference(logits: np.ndarray, s: Sampling) -> np.ndarray:
    """The distribution after temperature, top_k, top_p and min_p, by sorting, in float64; ties are kept."""
    x = logits.astype(np.float64) / (s.temperature or 1.0)
    p = np.exp(x - x.max())
    p /= p.sum()
    keep = np.ones_like(p, dtype=bool)
    if 0 < s.top_k < len(p):
        keep &= p >= np.sort(p)[-s.top_k]
    if s.top_p < 1:
        order = np.argsort(-p)
        mass = np.cumsum(np.where(keep, p, 0)[order])
        keep &= p >= p[order][np.argmax(mass >= s.top_p * mass[-1])]
    keep &= p >= s.min_p * p.max()
    q = np.where(keep, p, 0)
    return q / q.sum()


def frequencies(s: Sampling, n: int) -> torch.Tensor:
    ids, _ = Sampler([s] * n).draw(LOGITS.expand(n, -1), uniforms(7, n))
    return torch.bincount(ids, minlength=len(LOGITS))


@pytest.mark.parametrize(
    "s",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=2.5),
        Sampling(top_k=3),
        Sampling(top_p=0.7),
        Sampling(min_p=0.2),
        Sampling(temperature=1.5, top_k=5, top_p=0.9, min_p=0.1),
    ],
    ids=str,
)
def test_frequencies_are_those_of_the_renormalised_distribution(s: Sampling) -> None:
    n = 20_000
    expected = reference(LOGITS.numpy(), s) * n
    seen = frequencies(s, n).numpy()
    assert (seen[expected == 0] == 0).all()
    on = expected > 0
    assert ((seen[on] - expected[on]) ** 2 / expected[on]).sum() < CHI2_BOUND


def test_hand_computed_cuts() -> None:
    # softmax of ln(5, 3, 1, 1): 0.5, 0.3, 0.1, 0.1
    logits = torch.tensor([[5.0, 3.0, 1.0, 1.0]]).log()
    p = torch.softmax(logits, -1)

    def support(s: Sampling) -> list[int]:
        return Sampler([s])._cut(p)[0].nonzero()[:, 0].tolist()

    assert support(Sampling()) == [0, 1, 2, 3]
    assert support(Sampling(top_k=2)) == [0, 1]
    assert support(Sampling(top_k=3)) == [0, 1, 2, 3]  # entries that tie with the last one kept are kept
    assert support(Sampling(top_k=99)) == [0, 1, 2, 3]
    assert support(Sampling(top_p=0.49)) == [0]
    assert support(Sampling(top_p=0.51)) == [0, 1]  # the entry that crosses is kept
    assert support(Sampling(top_p=0.81)) == [0, 1, 2, 3]
    assert support(Sampling(top_k=2, top_p=0.6)) == [0]  # 0.5 of 0.8 is 0.625
    assert support(Sampling(min_p=0.59)) == [0, 1]
    assert support(Sampling(min_p=0.61)) == [0]
    assert support(Sampling(top_p=0.0)) == [0]
    assert support(Sampling(min_p=1.0)) == [0]


def test_log_probabilities_are_of_the_full_distribution_at_the_sampling_temperature() -> None:
    rows = [Sampling(), Sampling(temperature=0.7), Sampling(temperature=0), Sampling(temperature=2.0, top_k=1)]
    ids, logprobs = Sampler(rows).draw(LOGITS.expand(4, -1), torch.tensor([0.99, 0.5, 0.5, 0.9], dtype=torch.float64))
    full = [torch.log_softmax(LOGITS.double() / t, -1)[i].item() for t, i in zip((1, 0.7, 1, 2), ids, strict=True)]
    assert logprobs.tolist() == pytest.approx(full, abs=1e-6)
    assert ids[2:].tolist() == [0, 0]


def test_float64_is_drawn_in_float64_and_bfloat16_in_float32() -> None:
    u = torch.tensor([0.3], dtype=torch.float64)
    exact = Sampler([Sampling(temperature=0.7)]).draw(LOGITS.double()[None], u)[1]
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(torch.log_softmax(LOGITS.double() / 0.7, -1)[0].item(), abs=1e-14)
    assert Sampler([Sampling()]).draw(LOGITS.bfloat16()[None], u)[1].dtype == torch.float32


@given(
    logits=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 3.0]),
    top_k=st.integers(0, 45),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    u=st.sampled_from([0.0, 0.2, 0.5, 0.999, 1 - 2**-53]),
)
@settings(max_examples=150, deadline=None)
def test_any_setting_draws_a_supported_token(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, u: float
) -> None:
    x = torch.tensor(logits, dtype=torch.float64)[None]
    full = reference(x[0].numpy(), Sampling(temperature=temperature))
    # where rounding decides what reaches top_p, or min_p of the best, either answer is right
    kept = full if not 0 < top_k < len(full) else np.where(full >= np.sort(full)[-top_k], full, 0)
    mass = np.cumsum(np.sort(kept)[::-1])
    assume(np.abs(mass / mass[-1] - top_p).min() > 1e-9 or top_p == 1)
    assume(np.abs(full / full.max() - min_p).min() > 1e-9 or min_p in (0, 1))
    s = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids, logprobs = Sampler([s]).draw(x, torch.tensor([u], dtype=torch.float64))
    supported = full[reference(x[0].numpy(), s) > 0].min()
    assert full[ids.item()] >= supported * (1 - 1e-9)
    assert logprobs.item() == pytest.approx(math.log(full[ids.item()]), abs=1e-9)


@given(
    n=st.integers(1, 3 * BLOCK + 5),
    seed=st.integers(0, 2**31),
    holes=st.floats(0, 0.99),
    u=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=150, deadline=None)
def test_inversion_finds_the_entry_that_holds_the_number(n: int, seed: int, holes: float, u: float) -> None:
    generator = np.random.default_rng(seed)
    p = generator.random(n) ** 4
    p[generator.random(n) < holes] = 0
    p[generator.integers(n)] = 0.5
    index = invert(torch.from_numpy(p)[None], torch.tensor([u], dtype=torch.float64)).item()
    cdf = np.cumsum(p)
    slack = 1e-12 * cdf[-1]
    assert p[index] > 0
    assert cdf[index] - p[index] <= u * cdf[-1] + slack
    assert cdf[index] >= u * cdf[-1] - slack


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53, 1.0])
def test_the_last_number_below_one_falls_on_an_entry_that_is_possible(u: float) -> None:
    p = torch.full((3, 50_001), 1 / 50_001)
    p[0, 40_000:] = 0
    p[1, :] = 0
    p[1, 17] = 1e-30
    p[2, :49_999] = 0
    ids = invert(p, torch.full((3,), u, dtype=torch.float64))
    assert (p.gather(-1, ids[:, None]) > 0).all()
    assert ids.tolist() == ([0, 17, 49_999] if u == 0 else [39_999, 17, 50_000])


def test_a_number_on_the_seam_of_two_blocks_stays_on_an_entry_that_is_possible() -> None:
    for seed in range(50):
        p = torch.rand(1, 2 * BLOCK + 60, generator=torch.Generator().manual_seed(seed))
        p[0, BLOCK : BLOCK + 50] = 0
        rounded, exact = p[:, :BLOCK].sum().double(), p[:, :BLOCK].double().sum()
        if rounded > exact:  # the float32 sum reaches past the last entry of the block
            break
    else:
        raise AssertionError("no seed rounds up")
    blocks = torch.nn.functional.pad(p, (0, 196)).view(1, -1, BLOCK).sum(-1).double()
    ids = invert(p, (rounded + exact)[None] / 2 / blocks.sum())
    assert ids.tolist() == [BLOCK - 1]


def test_large_vocabulary_frequencies_per_block_have_no_drift() -> None:
    p = torch.softmax(torch.randn(1, 49_152, generator=torch.Generator().manual_seed(0)), -1)
    n = 4000
    ids = torch.cat([invert(p.expand(100, -1), u) for u in uniforms(3, n).split(100)])
    expected = p.view(-1, 49_152 // 8).sum(-1) * n
    seen = torch.bincount(ids // (49_152 // 8), minlength=8)
    assert ((seen - expected) ** 2 / expected).sum() < 34  # 0.9999 quantile, 7 degrees of freedom


def test_a_full_sort_is_needed_only_when_the_mass_is_spread() -> None:
    flat = torch.zeros(1, 5000, dtype=torch.float64)
    flat[0, ::2] -= 1  # 2500 entries of weight 1, 2500 of weight 1/e
    kept = Sampler([Sampling(top_p=0.9)])._cut(torch.softmax(flat, -1))[0]
    assert (kept > 0).all()  # the border lies among the lower half, and ties stay together
    kept = Sampler([Sampling(top_p=0.5)])._cut(torch.softmax(flat, -1))[0]
    assert (kept > 0).sum() == 2500


def test_a_row_is_drawn_alone_as_among_others() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(6, 700, generator=generator)
    rows = [
        Sampling(),
        Sampling(temperature=0),
        Sampling(top_p=0.3),
        Sampling(top_k=4),
        Sampling(min_p=0.5),
        Sampling(temperature=2.0),
    ]
    u = uniforms(1, 6)
    together, logprobs = Sampler(rows).draw(logits, u)
    for i, row in enumerate(rows):
        alone, logprob = Sampler([row]).draw(logits[i : i + 1], u[i : i + 1])
        assert alone.item() == together[i].item()
        assert logprob.item() == pytest.approx(logprobs[i].item(), abs=1e-6)


def test_a_longer_limit_continues_the_same_numbers() -> None:
    assert torch.equal(uniforms(11, 100)[:7], uniforms(11, 7))
    assert not torch.equal(uniforms(12, 7), uniforms(11, 7))
    uniforms(2**63 - 1, 1)


def test_unusable_rows_answer_nan_and_leave_the_others() -> None:
    logits = LOGITS.repeat(4, 1)
    logits[0, 2], logits[1, 0], logits[2] = math.nan, math.inf, -math.inf
    ids, logprobs = Sampler([Sampling()] * 4).draw(logits, torch.full((4,), 0.5, dtype=torch.float64))
    assert logprobs.isnan().tolist() == [True, True, True, False]
    assert ids[3] == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 1.1),
        ("top_p", -0.1),
        ("top_k", -1),
        ("min_p", 2.0),
        ("max_new_tokens", 0),
    ],
)
def test_settings_out_of_range_are_named(key: str, value: float) -> None:
    with pytest.raises(RolloutError, match=key):
        check_sampling(Sampling(**{key: value}))


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RolloutError, match="stop"):
        check_sampling(Sampling(stop=("x", "")))
