"""A mix on text that had no part in its choice: KL with its interval, and perplexity."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from mileage.measure.record_latency import Floats
from mileage.quant.effects import Progress
from mileage.quant.measured import MeasuredModel, Measurement, Mix, Window

__all__ = ["Judged", "judge", "summary"]

_RESAMPLES = 2000


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """KL of the next token's distribution from that without quantisation, nats per token."""

    mean: float
    ci95: tuple[float, float]
    """Of the mean: percentiles of a bootstrap that draws whole windows."""

    p99: float
    """Of tokens."""

    perplexity_ratio: float
    """Perplexity of the text over that without quantisation."""

    windows: tuple[float, ...]
    """The mean of each."""


def judge(
    model: MeasuredModel,
    windows: Sequence[Window],
    mix: Mix,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judged:
    """The mix on each of the windows."""
    found = []
    for i, window in enumerate(windows):
        found.append((model.measure(window, {}), model.measure(window, mix)))
        if progress is not None:
            progress(i + 1, len(windows))
    return summary([plain for plain, _ in found], [stored for _, stored in found], seed=seed)


def summary(
    plain: Sequence[Measurement], stored: Sequence[Measurement], *, seed: int = 0
) -> Judged:
    """Figures of the same windows without and with quantisation; ValueError without any."""
    if not stored:
        raise ValueError("a mix is judged on at least one window of text")
    means = np.array([each.kl.mean() for each in stored])
    loss = _mean_loss(stored) - _mean_loss(plain)
    return Judged(
        mean=float(means.mean()),
        ci95=_interval(means, seed),
        p99=float(np.quantile(np.concatenate([each.kl for each in stored]), 0.99)),
        perplexity_ratio=float(np.exp(loss)),
        windows=tuple(means.tolist()),
    )


def _mean_loss(measured: Sequence[Measurement]) -> float:
    return float(np.concatenate([each.loss for each in measured]).mean())


def _interval(means: Floats, seed: int) -> tuple[float, float]:
    drawn = np.random.default_rng(seed).integers(len(means), size=(_RESAMPLES, len(means)))
    low, high = np.quantile(means[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)
