"""What can be changed at once: only known keys of a trial, and no two that contradict."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.cli.config import Config
from mileage.cli.config_document import Document
from mileage.cli.doctor_fix import settings_of
from mileage.doctor.finding import Diagnosis, Finding
from mileage.doctor.hot_fixes import HOT_FIXES, hot_fixes
from mileage.doctor.opinion import Severity
from mileage.doctor.rules.all_rules import RULES
from mileage.gateway.admin.trial import Trial


def diagnosis(*causes: tuple[str, Severity]) -> Diagnosis:
    findings = tuple(
        Finding("X001", cause, "t", severity, 0.9, (), None, "r", (), "p")
        for cause, severity in causes
    )
    return Diagnosis("finding", findings, (), ())


@pytest.mark.parametrize("cause", HOT_FIXES)
def test_settings_are_such_as_the_gateway_tries(cause: str) -> None:
    settings = dict(HOT_FIXES[cause].settings)
    Trial(settings=settings, for_s=600.0)
    Document(None, {}, {}, Config, trial=settings).decode(Config)


def test_each_cause_has_a_rule() -> None:
    assert set(HOT_FIXES) <= {rule.cause for rule in RULES}


@pytest.mark.parametrize(
    ("causes", "fixed"),
    [
        pytest.param([("kv_preemption", "warning")], ["kv_preemption"], id="one"),
        pytest.param([("kv_preemption", "info")], [], id="worth knowing is not worth changing"),
        pytest.param([("oom_memory_headroom", "critical")], [], id="nothing can be done at once"),
        pytest.param(
            [("affinity_hotspot", "warning"), ("cache_unaware_routing", "warning")],
            ["affinity_hotspot", "cache_unaware_routing"],
            id="two that agree",
        ),
    ],
)
def test_what_is_fixed(causes: list[tuple[str, Severity]], fixed: list[str]) -> None:
    found = hot_fixes(diagnosis(*causes))
    assert list(found) == fixed
    settings: dict[str, Any] = settings_of(found)
    assert bool(settings) == bool(fixed)
