"""What end-to-end tests share: two scripted engines behind a real gateway, its log on failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.support.duo import Duo
from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway
from tests.support.served import Served

pytest.register_assert_rewrite("tests.support.openai_suite")

_LOG_CHARS_MAX = 20_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of the gateway and the engine that a failed test used."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            gateway = getattr(value, "gateway", value)
            if isinstance(gateway, Gateway):
                report.sections.append((f"log of {name}", gateway.log[-_LOG_CHARS_MAX:]))
            if isinstance(value, Served):
                report.sections.append((f"engine of {name}", value.engine_log()))
    return report


@pytest.fixture(scope="module")
def duo_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    """Two engines and a gateway, one set for all tests of a module."""
    with ScriptedEngine(models=("toy", "a")) as a, ScriptedEngine(models=("toy", "b")) as b:
        duo = Duo(tmp_path_factory.mktemp("duo"), a, b)
        with duo.gateway:
            yield duo


@pytest.fixture
def duo(duo_of_module: Duo) -> Duo:
    """The module's two engines, set back: up, well, and with no request behind them."""
    duo_of_module.reset()
    return duo_of_module
