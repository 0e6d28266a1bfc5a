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


@pytest.mark.parametrize(
    ("key", "value"), [("cap_ratio", 1.5), ("chunk_min_tokens", 0), ("strained_max", -1)]
)
def test_bad_configuration_of_a_budget_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"budget\.model\.{key}"):
        ModelBudgetConfig(**{key: value})  # type: ignore[arg-type]


def test_a_step_that_took_no_time_by_the_clock_teaches_nothing() -> None:
    for budget in (FixedBudget(), ModelBudget(ModelBudgetConfig(), 0.1)):
        budget.learn(1, 100.0, 50, 1000.0, 0.0)
        assert budget.alone_s(1000, 0) == 0.0


# --- steps of many experts: any prompt makes them long, however little of it there is -------------

DECODE_S = 0.009


def experts_s(tokens: int) -> float:
    return 0.045 + 1e-5 * tokens


@pytest.fixture
def of_experts() -> ModelBudget:
    found = ModelBudget(ModelBudgetConfig(), ITL_S)
    random = Random(1)
    for _ in range(400):
        decoding, tokens = random.randint(0, 8), random.choice([16, 64, 256, 1024, 4096, 8192])
        found.learn(decoding, 1000.0 * decoding, tokens, 0.0, experts_s(decoding + tokens))
    found.learn(1, 1000.0, 0, 0.0, DECODE_S)
    return found


def load(*spare: int) -> StepLoad:
    return StepLoad(len(spare), 1000 * len(spare), 8192, lambda: spare)


def prompt(left_s: float, tokens: int = 8000) -> Pending:
    return Pending(100.0 + left_s, tokens, 0)


@pytest.mark.parametrize(
    ("pending", "spare", "tokens"),
    [
        pytest.param([prompt(0.3)], (1, 2), 8000, id="all have a gap to spare: at once"),
        pytest.param([prompt(0.3)], (0, 2), 0, id="one has none: it waits"),
        pytest.param([prompt(0.18)], (0, 2), 8000, id="it cannot wait any longer"),
        pytest.param([prompt(0.18)], (0, 0), 899, id="two would miss for one: as the cap says"),
        pytest.param([prompt(0.6)], (0, 2), 899, id="in time under the cap"),
        pytest.param([prompt(0.1)], (1, 2), 899, id="late in any case"),
        pytest.param(
            [prompt(0.3), prompt(9, 150)], (1, 2), 8150, id="what else there is comes too"
        ),
        pytest.param([prompt(0.18), prompt(9)], (1, 2), 8000, id="unless it makes the first late"),
        pytest.param([prompt(math.inf)], (1, 2), 899, id="nothing is asked"),
    ],
)
def test_long_gaps_that_are_forgiven_are_spent_on_a_prompt_that_would_be_late(
    of_experts: ModelBudget, pending: list[Pending], spare: tuple[int, ...], tokens: int
) -> None:
    found = of_experts.tokens(load(*spare), pending, 100.0)
    assert found == pytest.approx(tokens, abs=60)


def test_what_waits_is_asked_for_again_when_it_has_to_begin(of_experts: ModelBudget) -> None:
    pending = [prompt(0.3)]
    assert of_experts.tokens(load(0), pending, 100.0) == 0
    again_s = of_experts.again_s
    assert 100.05 < again_s < 100.2
    assert of_experts.tokens(load(0), pending, again_s - 0.01) == 0
    assert of_experts.tokens(load(0), pending, again_s + 1e-6) == 8000
    assert of_experts.again_s == math.inf


def test_a_prompt_of_two_long_steps_is_not_given_up_between_them(of_experts: ModelBudget) -> None:
    """The first has spent what was forgiven; half a prompt is worth nothing."""
    two = StepLoad(2, 2_000, 5000, lambda: (2, 2))
    assert of_experts.tokens(two, [prompt(0.3)], 100.0) == 5000
    spent = StepLoad(2, 2_000, 5000, lambda: (0, 0))
    assert of_experts.tokens(spent, [Pending(100.3, 3000, 5000)], 100.15) == 3000
    assert of_experts.tokens(spent, [Pending(100.32, 3000, 5000)], 100.15) < 1000


def test_where_chunks_are_nearly_free_they_go_on_until_the_burst(budget: ModelBudget) -> None:
    """A step of 50 ms by its weights alone: to wait would gain those that decode nothing."""
    budget.learn(4, 4000.0, 0, 0.0, 0.050)
    pending = [Pending(0.5, 9_000, 0)]
    tokens = budget.tokens(StepLoad(4, 4_000, 9_000, lambda: (0, 1, 1, 1)), pending, 0.0)
    assert 900 < tokens < 1400
    assert budget.again_s == math.inf


# --- a target for the mean of gaps -------------------------------------------------------------


@pytest.mark.parametrize(
    ("past", "more_s"),
    [
        pytest.param([(100, 3.4)], 2.054, id="it has saved two seconds"),
        pytest.param([(0, 0.0), *[(100, 3.4)] * 4], 2.054, id="one in four has saved nothing"),
        pytest.param(
            [*[(0, 0.0)] * 2, *[(100, 3.4)] * 3], 0.054, id="more have not: one gap of debt"
        ),
        pytest.param([(100, 9.0)], 0.0, id="it is far behind: no step is the shorter for that"),
    ],
)
def test_for_a_mean_a_step_may_take_what_most_have_saved(
    past: list[tuple[int, float]], more_s: float
) -> None:
    budget = ModelBudget(ModelBudgetConfig(itl="mean"), ITL_S)
    taught(budget)
    decoding = len(past)
    kv_tokens = 1000 * decoding
    step = StepLoad(decoding, kv_tokens, 99_999, tuple, lambda: past)
    tokens = budget.tokens(step, LONG, 0.0)
    took_s = step_s(decoding, kv_tokens, tokens, pairs_of(tokens, 0))
    assert took_s == pytest.approx(0.9 * ITL_S + more_s, rel=0.04)


# --- a fit that says there is no room -------------------------------------------------------------


def misled(decode_s: float) -> ModelBudget:
    """All that it has seen is two requests; their context seems to be what takes the time."""
    budget = ModelBudget(ModelBudgetConfig(), ITL_S)
    for _ in range(40):
        for decoding in (1, 2):
            budget.learn(decoding, 4000.0 * decoding, 500, 0.0, 0.024 * decoding)
    budget.learn(2, 8000.0, 0, 0.0, decode_s)
    return budget


def test_what_the_fit_rules_out_is_tried_where_decoding_alone_is_within_the_cap() -> None:
    budget, sizes = misled(0.012), []
    for step in range(4):
        sizes.append(budget.tokens(StepLoad(8, 32_000, 8192), LONG, float(step)))
        budget.learn(8, 32_000.0, sizes[-1], 0.0, 0.02)
    assert sizes == [16, 32, 64, 128]


def test_the_fit_learns_from_what_is_tried_that_there_is_room() -> None:
    budget = misled(0.012)
    for step in range(100):
        tokens = budget.tokens(StepLoad(8, 32_000, 8192), LONG, float(step))
        budget.learn(8, 32_000.0, tokens, 0.0, 0.012 + 3e-5 * tokens)
    assert 0.6 * ITL_S < 0.012 + 3e-5 * tokens < ITL_S


def test_after_a_step_that_was_too_long_it_waits_twice_as_long_each_time() -> None:
    budget, at_s, waits = misled(0.012), 0.0, []
    for _ in range(4):
        assert budget.tokens(StepLoad(8, 320_000, 8192), LONG, at_s) == 16
        budget.learn(8, 320_000.0, 16, 0.0, 0.1)
        assert budget.tokens(StepLoad(8, 320_000, 8192), LONG, at_s + 0.1) == 0
        waits.append(budget.again_s - at_s)
        at_s = budget.again_s
    assert waits == [0.25, 0.5, 1.0, 2.0]


def test_nothing_is_tried_where_decoding_alone_takes_all_the_time() -> None:
    budget = misled(0.053)
    assert budget.tokens(StepLoad(8, 32_000, 8192), LONG, 0.0) == 0
    assert budget.again_s == math.inf


def test_a_chunk_that_found_no_block_is_no_trial() -> None:
    budget = misled(0.012)
    assert budget.tokens(StepLoad(8, 32_000, 8192), LONG, 0.0) == 16
    budget.learn(8, 32_000.0, 0, 0.0, 0.012)
    assert budget.tokens(StepLoad(8, 32_000, 8192), LONG, 1.0) == 16
