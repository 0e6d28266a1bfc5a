"""The table of engine kinds is whole, and its endpoints do not contradict themselves."""

from __future__ import annotations

from typing import get_args

import pytest

from mileage.core.request import Endpoint
from mileage.engines.config import EngineKind
from mileage.engines.kinds import KINDS, MODELS_PATH, Kind


def test_every_kind_that_can_be_configured_is_in_the_table() -> None:
    assert tuple(KINDS) == get_args(EngineKind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_endpoint_is_there_or_may_be_or_is_not(kind: Kind) -> None:
    assert sorted([*kind.has, *kind.may, *kind.lacks]) == sorted(get_args(Endpoint))
    assert "chat" in kind.has


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_paths_are_paths_and_health_ends_at_the_model_list(kind: Kind) -> None:
    paths = [*kind.health_paths, *kind.metrics_paths, *kind.version_paths]
    assert all(path.startswith("/") and not path.endswith("/") for path in paths)
    assert kind.health_paths[-1] == MODELS_PATH


def test_only_triton_is_known_to_lack_endpoints() -> None:
    lacking = {name: kind.lacks for name, kind in KINDS.items() if kind.lacks}
    assert lacking == {"triton": ("responses", "messages")}
