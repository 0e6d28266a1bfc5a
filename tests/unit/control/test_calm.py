"""What is sent without a closer look, since it cannot be late, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Reject
from mileage.core.events import Arrived, ConfigChanged, Finished, FirstToken, ReplicaUp, Woke
from mileage.core.slo import Slo, SloConfig
from mileage.policy.limits.model import ModelConfig
from tests.support.controllers import controller, request

INSIDE = ModelConfig(engine_policies=True)


class Replica:
    """A controller before one replica that prefills one prompt after the other."""

    def __init__(self, tokens_per_s: float, slo: SloConfig, **governor: Any) -> None:
        self.made: Controller = controller(
            known=("a",), slo=slo, governor=GovernorConfig(**governor)
        )
        self.made.handle(ReplicaUp("a", ("llama", "adapter")), 0.0)
        self.tokens_per_s = tokens_per_s
        self.now_s = 0.0
        self.number = 0

    def arrive(self, tokens: int, model: str = "llama") -> Action:
        """The answer to a request that comes a moment later."""
        self.now_s += 0.001
        self.number += 1
        arrived = request(self.number, model, arrived_s=self.now_s, prompt_tokens_estimate=tokens)
        actions = self.made.handle(Arrived(arrived), self.now_s)
        (answer,) = (each for each in actions if isinstance(each, Dispatch | Reject))
        return answer

    def learn(self, rounds: int = 60) -> None:
        """Two prompts at a time, and then none."""
        for count in range(rounds):
            sizes = 300 + 40 * (count % 5), 300 + 30 * (count % 7)
            for tokens in sizes:
                assert isinstance(self.arrive(tokens), Dispatch)
            for number, tokens in zip((self.number - 1, self.number), sizes, strict=True):
                self.now_s += tokens / self.tokens_per_s
                self.made.handle(FirstToken(number), self.now_s)
            for number, tokens in zip((self.number - 1, self.number), sizes, strict=True):
                self.made.handle(Finished(number, tokens, 0, 2), self.now_s)
            self.now_s += 1.0
            self.made.handle(Woke(), self.now_s)


def taken(answers: list[Action]) -> list[bool]:
    return [isinstance(each, Dispatch) for each in answers]


@pytest.mark.parametrize(
    "governor",
    [
        pytest.param({"policy": "static"}, id="prefilled as sent"),
        pytest.param({"policy": "model", "model": INSIDE}, id="prefilled by deadline"),
    ],
)
@pytest.mark.parametrize("tokens_per_s", [100.0, 1000.0, 10_000.0])
def test_what_would_be_late_is_refused_though_there_is_room(
    governor: dict[str, Any], tokens_per_s: float
) -> None:
    """400 tokens at a time: of those that come together three are in time."""
    replica = Replica(tokens_per_s, SloConfig(ttft_s=1400 / tokens_per_s), **governor)
    replica.learn()
    answers = taken([replica.arrive(400) for _ in range(8)])
    assert answers[:2] == [True, True]
    assert sum(answers) <= 3


def test_a_model_with_a_target_of_its_own_is_held_to_it() -> None:
    """The replica's base model has none, or a longer one."""
    for general in (None, 100.0):
        slo = SloConfig(ttft_s=general, models={"adapter": Slo(ttft_s=1.4)})
        replica = Replica(1000.0, slo, policy="static")
        replica.learn()
        assert all(taken([replica.arrive(400) for _ in range(8)]))
        assert not any(taken([replica.arrive(400, "adapter") for _ in range(2)]))


def test_another_order_of_prefills_is_learned_anew() -> None:
    """Work is counted in other units from then on."""
    slo = SloConfig(ttft_s=14.0)
    replica = Replica(100.0, slo, policy="static")
    replica.learn()
    inside = GovernorConfig(policy="model", model=INSIDE)
    settings = msgspec.json.encode(ControlConfig(slo=slo, governor=inside)).decode()
    replica.arrive(400)
    replica.made.handle(ConfigChanged(2, settings), replica.now_s)
    (state,) = replica.made.governor.replicas
    assert not state.throttle.service.known
    replica.made.handle(FirstToken(replica.number), replica.now_s + 4.0)
    assert state.throttle.service.samples == 0  # it was sent under the other order


def test_what_comes_late_but_has_no_target_is_sent_where_there_is_room() -> None:
    made = controller(
        *"ab",
        known=("a", "b"),
        replica_running_max={"a": 1, "b": 100},
        governor=GovernorConfig(policy="static", queue_wait_max_s=1.0),
    )
    for number in range(1, 11):
        actions = made.handle(Arrived(request(number, arrived_s=0.0)), 5.0)
        assert any(isinstance(each, Dispatch) for each in actions)
    assert made.failure is None
