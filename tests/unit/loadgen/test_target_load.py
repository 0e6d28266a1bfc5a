"""Which target has the fewest calls on their way."""

from __future__ import annotations

import random

from mileage.loadgen.target_load import TargetLoad


def test_equal_targets_take_their_turns() -> None:
    load = TargetLoad(3)
    chosen = []
    for _ in range(6):
        chosen.append(load.least())
        load.begin(chosen[-1])
        load.end(chosen[-1])
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_a_slow_target_gets_what_it_bears() -> None:
    load = TargetLoad(2)
    for _ in range(4):
        load.begin(load.least())
    for _ in range(5):  # target 1 answers at once, target 0 never
        load.end(1)
        assert load.least() == 1
        load.begin(1)


def test_what_is_chosen_has_never_more_than_another() -> None:
    draw = random.Random(5)
    load, counts = TargetLoad(5), [0] * 5
    for _ in range(200):
        chosen = load.least()
        assert counts[chosen] == min(counts)
        load.begin(chosen)
        counts[chosen] += 1
        if draw.random() < 0.4:
            over = draw.choice([target for target in range(5) if counts[target]])
            load.end(over)
            counts[over] -= 1
