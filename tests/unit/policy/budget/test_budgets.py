"""Budgets on an engine whose step time is known."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.budget.choose import make_budget
from mileage.policy.budget.fixed import FixedBudget
from mileage.policy.budget.model import ModelBudget, ModelBudgetConfig
from mileage.policy.budget.policy import Pending, StepLoad
from mileage.policy.budget.prefill_time import PrefillTime

ITL_S = 0.06
PAIR_S = 1e-9
LONG = [Pending(math.inf, 100_000, 0)]


def pairs_of(tokens: int, before: int) -> float:
    return tokens * before + tokens * (tokens + 1) / 2


def step_s(decoding: int, kv_tokens: float, tokens: int, pairs: float) -> float:
    """Memory-bound at first, and then by all tokens of the step."""
    memory_s = 8e-3 + 4e-8 * kv_tokens
    return max(memory_s, 4e-3 + 4e-5 * (decoding + tokens) + 4e-8 * kv_tokens + PAIR_S * pairs)


def taught(learner: PrefillTime | ModelBudget, *, samples: int = 400) -> None:
    random = Random(1)
    for _ in range(samples):
        decoding, tokens = random.randint(0, 120), random.choice([16, 64, 256, 512, 1024, 8192])
        kv_tokens, before = 1000.0 * decoding, random.choice([0, 0, 5_000, 50_000])
        pairs = pairs_of(tokens, before)
        took_s = step_s(decoding, kv_tokens, tokens, pairs) * random.gauss(1.0, 0.01)
        learner.learn(decoding, kv_tokens, tokens, pairs, took_s)


@pytest.fixture
def budget() -> ModelBudget:
    found = ModelBudget(ModelBudgetConfig(), ITL_S)
    taught(found)
    return found


@pytest.mark.parametrize("before", [0, 20_000, 90_000])
@pytest.mark.parametrize("decoding", [1, 32, 100])
def test_a_step_takes_up_to_nine_tenths_of_the_target(
    budget: ModelBudget, decoding: int, before: int
) -> None:
    kv_tokens = 1000 * decoding
    pending = [Pending(math.inf, 100_000, before)]
    tokens = budget.tokens(StepLoad(decoding, kv_tokens, 8192), pending, 0.0)
    took_s = step_s(decoding, kv_tokens, tokens, pairs_of(tokens, before))
    assert took_s == pytest.approx(0.9 * ITL_S, rel=0.04)


def test_several_prompts_in_one_step_count_each_with_its_own_past(budget: ModelBudget) -> None:
    pending = [Pending(9.0, 200, 60_000), Pending(9.0, 100, 0), Pending(9.0, 50_000, 10_000)]
    tokens = budget.tokens(StepLoad(40, 40_000, 8192), pending, 0.0)
    rest = tokens - 300
    pairs = pairs_of(200, 60_000) + pairs_of(100, 0) + pairs_of(rest, 10_000)
    assert rest > 0
    assert step_s(40, 40_000, tokens, pairs) == pytest.approx(0.9 * ITL_S, rel=0.04)


@pytest.mark.parametrize(
    ("decoding", "kv_tokens", "tokens"),
    [
        pytest.param(0, 0, 8192, id="nobody decodes: a step may take any time"),
        pytest.param(100, 1_300_000, 0, id="those that decode take it all: none until one ends"),
        pytest.param(1, 1_400_000, 8192, id="one request alone is too slow: no target to keep"),
    ],
)
def test_where_the_cap_says_nothing(
    budget: ModelBudget, decoding: int, kv_tokens: int, tokens: int
) -> None:
    assert budget.tokens(StepLoad(decoding, kv_tokens, 8192), LONG, 0.0) == tokens


def test_no_more_than_the_engine_takes_and_than_there_is(budget: ModelBudget) -> None:
    assert budget.tokens(StepLoad(4, 4_000, 128), LONG, 0.0) == 128
    assert budget.tokens(StepLoad(4, 4_000, 8192), [Pending(1.0, 30, 0)], 0.0) == 30


def test_the_last_few_tokens_of_a_prompt_are_worth_a_step(budget: ModelBudget) -> None:
    assert budget.tokens(StepLoad(4, 4_000, 8192), [Pending(1.0, 3, 500)], 0.0) == 3


def test_while_nothing_is_known_steps_grow_until_they_are_too_long() -> None:
    budget = ModelBudget(ModelBudgetConfig(), ITL_S)
    sizes = []
    for _ in range(12):
        tokens = budget.tokens(StepLoad(8, 8_000, 8192), LONG, 0.0)
        sizes.append(tokens)
        budget.learn(8, 8_000.0, tokens, 0.0, 0.02 if tokens < 400 else 0.08)
    assert sizes[0] == 128
    assert max(sizes) >= 400
    assert sizes[sizes.index(max(sizes)) + 1] <= max(sizes) / 2 + 1


def test_without_a_target_steps_are_as_full_as_they_can_be() -> None:
    assert make_budget("model", None).tokens(StepLoad(8, 0, 2048), LONG, 0.0) == 2048


def test_the_fixed_budget_is_all_that_the_engine_takes() -> None:
    budget = make_budget("fixed", ITL_S)
    taught(budget)  # type: ignore[arg-type]
    assert budget.tokens(StepLoad(200, 10**6, 777), LONG, 0.0) == 777


@pytest.mark.parametrize(("tokens", "before"), [(8192, 0), (60_000, 0), (60_000, 40_000)])
def test_the_time_alone_counts_how_far_a_prompt_looks_back(tokens: int, before: int) -> None:
    time = PrefillTime()
    assert time.alone_s(tokens, before) == 0.0
    taught(time)
    true_s = 4e-5 * tokens + PAIR_S * pairs_of(tokens, before)
    assert time.alone_s(tokens, before) == pytest.approx(true_s, rel=0.2)


@pytest.mark.parametrize(("key", "value"), [("cap_ratio", 1.5), ("chunk_min_tokens", 0)])
def test_bad_configuration_of_a_budget_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.model\.{key}"):
        ModelBudgetConfig(**{key: value})  # type: ignore[arg-type]


def test_a_step_that_took_no_time_by_the_clock_teaches_nothing() -> None:
    for budget in (FixedBudget(), ModelBudget(ModelBudgetConfig(), 0.1)):
        budget.learn(1, 100.0, 50, 1000.0, 0.0)
        assert budget.alone_s(1000, 0) == 0.0
