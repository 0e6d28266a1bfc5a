"""Limits of the whole gateway, as each of several workers is told them."""

from __future__ import annotations

import pytest

from mileage.gateway.config import GatewayConfig, ServerConfig, Upstream

BODY = 1 << 20


@pytest.mark.parametrize(
    ("workers", "connections", "buffer_bytes", "upstream"),
    [
        pytest.param(1, 10, 10 * BODY, 7, id="one worker has all"),
        pytest.param(2, 5, 5 * BODY, 3, id="two have half each, rounded down"),
        pytest.param(16, 1, BODY, 1, id="nobody has less than one request needs"),
    ],
)
def test_worker_share(workers: int, connections: int, buffer_bytes: int, upstream: int) -> None:
    config = GatewayConfig(
        server=ServerConfig(
            workers=workers,
            connections_max=10,
            body_bytes_max=BODY,
            buffer_bytes_max=10 * BODY,
            headers_max=7,
        ),
        upstreams=(Upstream(name="a", url="http://127.0.0.1:1", connections_max=7),),
    )
    share = config.worker_share()
    assert share.server.connections_max == connections
    assert share.server.buffer_bytes_max == buffer_bytes
    assert share.upstreams[0].connections_max == upstream
    assert share.server.headers_max == 7
    assert share.upstreams[0].name == "a"
