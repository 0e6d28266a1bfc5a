"""The page of the admin API names every path, field, figure and error code there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from mileage.gateway.admin.fleet import LedgerStatus
from mileage.gateway.admin.governor import DecisionRow, FailureRow, GovernorStatus
from mileage.gateway.admin.series import LEVELS, POINTS_MAX, SeriesDocument
from mileage.gateway.admin.spend import BudgetRow, TenantRow
from mileage.gateway.admin.status import ProcessRow, ReplicaRow, Status
from mileage.gateway.admin.targets import TargetRow
from mileage.gateway.admin.telemetry import (
    GpuMinuteRow,
    TelemetrySourceRow,
    TelemetryStatus,
)
from mileage.gateway.knob_status import KnobStatus
from mileage.ledger.cost_view import (
    CostAccount,
    CostAmount,
    CostPeriod,
    CostReplica,
    CostView,
)
from tests.support.admin_plane import AdminPlane


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "admin-api.md").read_text("utf-8")


def sources(repository: Path) -> str:
    directory = repository / "src" / "mileage" / "gateway" / "admin"
    return "\n".join(path.read_text("utf-8") for path in sorted(directory.glob("*.py")))


def test_every_path_is_there(page: str, repository: Path) -> None:
    paths = set(re.findall(r'Route\("([^"]+)"', sources(repository)))
    assert len(paths) > 10
    named = {path.replace("{name:path}", "NAME") for path in paths} - {"/assets/{name}"}
    assert [
        path for path in sorted(named) if f"{path}`" not in page and f"{path} " not in page
    ] == []


def test_every_error_code_is_there(page: str, repository: Path) -> None:
    used = set(re.findall(r'code="(\w+)"', sources(repository)))
    table = page.partition("## Errors")[2]
    assert used == set(re.findall(r"`(\w+)`", table)) - {"code", "param"}


@pytest.mark.parametrize(
    "struct",
    [
        CostView,
        CostAccount,
        CostAmount,
        CostPeriod,
        CostReplica,
        Status,
        ReplicaRow,
        KnobStatus,
        ProcessRow,
        LedgerStatus,
        SeriesDocument,
        GovernorStatus,
        DecisionRow,
        FailureRow,
        BudgetRow,
        TenantRow,
        TargetRow,
        TelemetryStatus,
        TelemetrySourceRow,
        GpuMinuteRow,
    ],
)
def test_every_field_is_there(page: str, struct: type[msgspec.Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(struct)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_figure_is_there(page: str) -> None:
    plane = AdminPlane()
    plane.advance(20)
    sample = plane.app.series.latest(0.0)
    assert sample is not None
    made = {*sample.values, *sample.groups}
    assert [name for name in sorted(made) if f"`{name}`" not in page] == []


def test_the_levels_are_as_told(page: str) -> None:
    assert LEVELS == ((1, 3_600), (10, 900), (60, 1_440))
    assert f"{POINTS_MAX} points at most" in page
    assert "`step_s` (1, 10 or 60)" in page
