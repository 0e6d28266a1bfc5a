"""Client connections leave files for those to the engines."""

from __future__ import annotations

import pytest

from mileage.gateway.config import ServerConfig
from mileage.gateway.file_limit import fit_connections


@pytest.mark.parametrize(
    ("files", "connections"),
    [
        pytest.param(1_048_576, 10_000, id="room enough: as configured"),
        pytest.param(20_000, 9_968, id="almost enough: not worth a word"),
        pytest.param(1024, 480, id="few: half of what is not reserved"),
        pytest.param(10, 1, id="none: one nevertheless"),
        pytest.param(-1, 10_000, id="no limit"),
    ],
)
def test_connections_fit_the_limit_on_open_files(
    files: int, connections: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = ServerConfig(connections_max=10_000)
    assert fit_connections(config, files).connections_max == connections
    assert ("ulimit" in caplog.text) is (connections < 5000)
