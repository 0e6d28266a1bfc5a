"""The mixture limit: entropy of the mix, and the free part of the KV cache."""

from __future__ import annotations

import math

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.mixture import MixtureConfig, MixtureLimit, mix_entropy
from tests.support.limit_signals import signals_of, view_of


@pytest.mark.parametrize(
    ("counts", "entropy"),
    [
        pytest.param((9, 0, 0), 0.0, id="one kind"),
        pytest.param((5, 5, 5), 1.0, id="three kinds alike"),
        pytest.param((5, 5, 0), math.log(2) / math.log(3), id="two kinds alike"),
        pytest.param((0, 0, 0), None, id="nothing"),
        pytest.param((-4, 3, 0), 0.0, id="a negative count is none"),
    ],
)
def test_mix_entropy(counts: tuple[int, int, int], entropy: float | None) -> None:
    assert mix_entropy(counts) == (None if entropy is None else pytest.approx(entropy))


@pytest.mark.parametrize(
    ("counts", "kv", "tokens_max", "load", "limit"),
    [
        pytest.param((9, 0, 0), None, None, 100.0, 10, id="one kind: 8 * 1 + 2"),
        pytest.param((5, 5, 5), None, None, 100.0, 2, id="all kinds alike: 2"),
        pytest.param((5, 5, 0), None, None, 100.0, 4, id="two alike: 8 * 0.37 + 2"),
        pytest.param((9, 0, 0), 0.8, 2000, 100.0, 8, id="4 in flight, 400 tokens free: 4 more"),
        pytest.param((9, 0, 0), 1.0, 2000, 100.0, 4, id="a full cache: those in flight"),
        pytest.param(
            (9, 0, 0), 0.8, None, 100.0, 10, id="size of the cache unknown: the mix alone"
        ),
        pytest.param((9, 0, 0), 0.8, -5, 100.0, 10, id="a cache of -5 tokens: the mix alone"),
        pytest.param((9, 0, 0), math.nan, 2000, 100.0, 10, id="usage is no number: the mix alone"),
        pytest.param((9, 0, 0), 0.8, 2000, 0.0, 10, id="load unknown: the mix alone"),
        pytest.param((0, 0, 0), 0.8, 2000, 100.0, 6, id="no requests: hold"),
    ],
)
def test_mixture_limit(
    counts: tuple[int, int, int],
    kv: float | None,
    tokens_max: int | None,
    load: float,
    limit: int,
) -> None:
    view = view_of(0.0, kv_cache_usage_ratio=kv, kv_tokens_max=tokens_max)
    signals = signals_of(4, view=view, modality_counts=counts, load_mean=load)
    assert MixtureLimit(MixtureConfig(), limit=6).update(signals, 0.0).limit == limit


def test_a_full_cache_without_anything_of_ours_in_it_still_lets_one_run() -> None:
    view = view_of(0.0, kv_cache_usage_ratio=1.0, kv_tokens_max=2000)
    signals = signals_of(0, view=view, modality_counts=(3, 0, 0), load_mean=100.0)
    assert MixtureLimit(MixtureConfig(), limit=6).update(signals, 0.0).limit == 1


def test_while_the_view_is_stale_the_limit_falls_but_does_not_rise() -> None:
    policy = MixtureLimit(MixtureConfig(), limit=6)
    view = view_of(0.0, kv_cache_usage_ratio=0.8, kv_tokens_max=2000)
    pure = {"modality_counts": (9, 0, 0), "load_mean": 100.0, "view": view}
    assert policy.update(signals_of(2, **pure), 0.0).limit == 6
    assert policy.update(signals_of(9, **pure), 100.0).limit == 6
    mixed = signals_of(9, view=view, modality_counts=(3, 3, 3), load_mean=100.0)
    assert policy.update(mixed, 102.0).limit == 2


def test_one_change_per_period() -> None:
    policy = MixtureLimit(MixtureConfig(), limit=6)
    pure = signals_of(modality_counts=(9, 0, 0))
    mixed = signals_of(modality_counts=(3, 3, 3))
    assert [policy.update(s, t).limit for s, t in [(pure, 0.0), (mixed, 0.5), (mixed, 1.0)]] == [
        10,
        10,
        2,
    ]


def test_the_engines_own_limit_holds() -> None:
    signals = signals_of(modality_counts=(9, 0, 0), running_max=3)
    assert MixtureLimit(MixtureConfig(), limit=6).update(signals, 0.0).limit == 3


def test_bad_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"governor\.mixture\.mixed_max"):
        MixtureConfig(pure_max=4, mixed_max=5)
