"""Token prices, as others share costs out: what the estimators of the attribution are beside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mileage.core.timeline import RequestTimeline

__all__ = ["by_average_rate", "by_fitted_prices", "by_true_prices", "errors_of", "worst_error"]

Floats = NDArray[np.float64]
Totals = Mapping[str, float]


def errors_of(found: Totals, truth: Totals) -> dict[str, float]:
    """Relative error of each tenant's GPU time."""
    return {tenant: found.get(tenant, 0.0) / true - 1.0 for tenant, true in truth.items()}


def worst_error(found: Totals, truth: Totals) -> float:
    """The largest of them, either way."""
    return max(map(abs, errors_of(found, truth).values()))


def _uncached(request: RequestTimeline) -> int:
    return (request.prompt_tokens or 0) - (request.cached_tokens or 0)


def _used(requests: Sequence[RequestTimeline]) -> dict[str, Floats]:
    """Prompt tokens, as far as is known without what was cached, and output tokens by tenant."""
    used: dict[str, Floats] = defaultdict(lambda: np.zeros(2))
    for request in requests:
        used[request.tenant] += (_uncached(request), request.output_tokens or 0)
    return dict(used)


def by_average_rate(requests: Sequence[RequestTimeline], total: float) -> dict[str, float]:
    """All tokens cost the same: prompt and output, cached or not."""
    tokens: dict[str, float] = defaultdict(float)
    for request in requests:
        tokens[request.tenant] += (request.prompt_tokens or 0) + (request.output_tokens or 0)
    whole = sum(tokens.values())
    return {tenant: total * each / whole for tenant, each in tokens.items()}


def by_true_prices(requests: Sequence[RequestTimeline], truth: Totals) -> dict[str, float]:
    """The two prices, of a prompt and of an output token, that fit the true costs of the tenants
    best: nobody can know them, and no two prices do better by the squares of relative errors."""
    used = _used(requests)
    rows = np.array([used[tenant] / true for tenant, true in truth.items()])
    return _priced(used, _prices(rows, np.ones(len(rows))))


def by_fitted_prices(
    requests: Sequence[RequestTimeline], total: float, gpus: float
) -> dict[str, float]:
    """The two prices that a gateway can learn without a model of steps: of a prompt token by how
    much later first tokens come with longer prompts, as far as is known without what was cached; of
    an output token by what is left of the total, which is given."""
    waits = np.array(
        [
            (_uncached(r), r.first_token_s - (r.dispatched_s or 0.0))
            for r in requests
            if r.first_token_s is not None
        ]
    )
    used = _used(requests)
    prompt, output = np.sum(list(used.values()), axis=0)
    price = 1e9 * gpus * max(0.0, _slope(waits[:, 0], waits[:, 1]))
    price = min(price, total / max(prompt, 1.0))
    return _priced(used, np.array([price, (total - price * prompt) / max(output, 1.0)]))


def _slope(x: Floats, y: Floats) -> float:
    """The median slope between the halves of the points by x (a robust line: H. Theil, 1950)."""
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    low, high = order[:half], order[-half:]
    run = x[high] - x[low]
    return float(np.median((y[high] - y[low])[run > 0.0] / run[run > 0.0]))


def _prices(loads: Floats, costs: Floats) -> Floats:
    """Least squares; neither below 0."""
    prices, *_ = np.linalg.lstsq(loads, costs, rcond=None)
    if (prices >= 0.0).all():
        return np.asarray(prices)
    alone = [
        float(np.dot(loads[:, k], costs) / max(np.dot(loads[:, k], loads[:, k]), 1e-300))
        for k in (0, 1)
    ]
    rests = [float(((loads[:, k] * alone[k] - costs) ** 2).sum()) for k in (0, 1)]
    return np.array([alone[0], 0.0]) if rests[0] <= rests[1] else np.array([0.0, alone[1]])


def _priced(used: Mapping[str, Floats], prices: Floats) -> dict[str, float]:
    return {tenant: float(np.dot(each, prices)) for tenant, each in used.items()}
