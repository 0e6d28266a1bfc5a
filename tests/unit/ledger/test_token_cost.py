"""What tokens cost: classes pay for all use, and a cached token's cost is what rows show."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mileage.ledger.bill_sums import UseSums
from mileage.ledger.token_cost import cached_token_ratio, token_costs
from mileage.ledger.usage_row import UsageRow
from tests.support.usage_rows import usage


def sums(**fields: int) -> UseSums:
    figures: dict[str, Any] = {
        "prompt_tokens": 1000,
        "cached_tokens": 600,
        "output_tokens": 50,
        "gpu_ns": 900,
        "prefill_ns": 300,
        "recomputed_ns": 60,
    }
    row = usage(**(figures | fields))
    found = UseSums()
    found.add_row(row, row.gpu_ns * 10**6)
    return found


@pytest.mark.parametrize("failed_ns", [0, 90, 900])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0])
def test_classes_times_their_tokens_are_all_that_was_used(ratio: float, failed_ns: int) -> None:
    use = sums(failed_ns=failed_ns)
    found = token_costs(use, ratio)
    assert found.computed is not None
    assert found.cached is not None
    assert found.output is not None
    assert found.prompt is not None
    prefill = found.computed * 400 + found.cached * 600
    assert (prefill + found.output * 50) / 1e6 == pytest.approx(0.9)
    assert found.prompt * 1000 == pytest.approx(prefill)
    assert found.cached == pytest.approx(ratio * found.computed)


def test_where_the_cost_of_a_cached_token_is_not_known_computed_ones_pay_all() -> None:
    found = token_costs(sums(), None)
    assert found.cached is None
    assert found.computed is not None
    assert found.computed * 400 / 1e6 == pytest.approx(0.3)


def test_what_has_no_tokens_or_no_price_has_no_cost_of_them() -> None:
    assert token_costs(sums(output_tokens=0), 0.1).output is None
    unpriced = UseSums()
    unpriced.add_row(usage(gpu_ns=5, prompt_tokens=3), None)
    assert token_costs(unpriced, 0.1).prompt is None
    assert token_costs(UseSums(), 0.1).output is None


def rows(ratio: float, count: int, noise: float, shares: tuple[float, float]) -> list[UsageRow]:
    random = Random(count)
    found = []
    for _ in range(count):
        prompt = random.randrange(10_000, 10_000_000)
        cached = int(prompt * random.uniform(*shares))
        work = (prompt - cached + ratio * cached) * random.lognormvariate(0.0, noise)
        prefill_ns = int(1000 * work)
        found.append(
            usage(
                prompt_tokens=prompt, cached_tokens=cached, gpu_ns=prefill_ns, prefill_ns=prefill_ns
            )
        )
    return found


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.4])
def test_the_ratio_is_found_in_the_rows(ratio: float) -> None:
    found = cached_token_ratio(rows(ratio, 400, 0.1, (0.0, 0.9)))
    assert found == pytest.approx(ratio, abs=0.04)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(rows(0.1, 20, 0.01, (0.0, 0.9)), id="too few"),
        pytest.param(rows(0.1, 400, 0.01, (0.5, 0.5)), id="all alike"),
        pytest.param(rows(0.1, 30, 0.8, (0.0, 0.3)), id="too noisy"),
        pytest.param([], id="none"),
    ],
)
def test_a_ratio_that_rows_do_not_show_is_none(of: list[UsageRow]) -> None:
    assert cached_token_ratio(of) is None
