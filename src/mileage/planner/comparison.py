"""Deployments side by side: memory, quality, what a card gives in a day, and what a task costs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.measure.pareto import Objective, non_dominated

__all__ = ["ComparedDeployment", "DeploymentCard", "Quality", "compare_deployments"]

_DAY_S = 86_400.0
_HOUR_S = 3_600.0
_USD_MAX = 1e9
_FRONT = (
    Objective(name="usd_per_task", sense="min"),
    Objective(name="score", sense="max"),
)


class Quality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How well a model answers. Scores of different measures are not comparable."""

    score: float
    """From 0 to 1."""
    measure: str
    """As `HumanEval pass@1`."""
    source: str
    """Where the score is from."""

    def __post_init__(self) -> None:
        require_range("*.quality.score", self.score, 0.0, 1.0)
        for key in ("measure", "source"):
            if not getattr(self, key).strip():
                raise ConfigError(f"*.quality.{key}", "", "some text: a bare number says nothing")


class DeploymentCard(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve a model. What is not known is None, and so is all that follows from it."""

    name: str
    model: str
    form: str
    """What is served by what on what, for people: `GGUF Q4_K_M, llama.cpp, laptop`."""
    cards: int = 1
    """GPUs, or other devices, that it takes."""
    memory_bytes: float | None = None
    """On each of them: weights, KV cache and what computing takes."""
    usd_per_hour: float | None = None
    """Of all cards together, whether they are used or not."""
    requests_per_s: float | None = None
    """What it can serve within its targets."""
    requests_per_task: float = 1.0
    """Calls that one task makes."""
    quality: Quality | None = None

    def __post_init__(self) -> None:
        require_at_least("cards", self.cards, 1)
        require_range("requests_per_task", self.requests_per_task, 1e-6, 1e9)
        for key in ("memory_bytes", "usd_per_hour", "requests_per_s"):
            if (value := getattr(self, key)) is not None:
                require_range(key, value, 0.0, _USD_MAX * _USD_MAX)


class ComparedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """What a card comes to."""

    card: DeploymentCard
    usd_per_request: float | None
    """When it is full: usd_per_hour / (3600 requests_per_s)."""
    usd_per_task: float | None
    usd_per_solved_task: float | None
    """usd_per_task / score: what is tried until it is right, if tries are independent."""
    requests_per_card_day: float | None
    on_front: bool | None
    """Whether no other costs no more per task and scores no less, and differs in one of the two.
    None where either is not known, or another measure was used than by the rest."""


def compare_deployments(cards: Sequence[DeploymentCard]) -> list[ComparedDeployment]:
    """The cards in their order. Raises ConfigError for two of one name."""
    names = [card.name for card in cards]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("name", name, "another name for each deployment")
    measures = {card.quality.measure for card in cards if card.quality is not None}
    costs = [_usd_per_task(card) for card in cards]
    scores = [None if card.quality is None else card.quality.score for card in cards]
    front = non_dominated(
        [{"usd_per_task": usd, "score": score} for usd, score in zip(costs, scores, strict=True)],
        _FRONT,
    )
    return [
        ComparedDeployment(
            card=card,
            usd_per_request=_usd_per_request(card),
            usd_per_task=usd,
            usd_per_solved_task=usd / score if usd is not None and score else None,
            requests_per_card_day=(
                None if card.requests_per_s is None else card.requests_per_s * _DAY_S / card.cards
            ),
            on_front=on if None not in (usd, score) and len(measures) == 1 else None,
        )
        for card, usd, score, on in zip(cards, costs, scores, front, strict=True)
    ]


def _usd_per_request(card: DeploymentCard) -> float | None:
    if card.usd_per_hour is None or not card.requests_per_s:
        return None
    return card.usd_per_hour / (_HOUR_S * card.requests_per_s)


def _usd_per_task(card: DeploymentCard) -> float | None:
    usd = _usd_per_request(card)
    return None if usd is None else usd * card.requests_per_task
