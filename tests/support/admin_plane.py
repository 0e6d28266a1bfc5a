"""An admin plane without a socket: a synthetic fleet, a clock that the test moves, small pages."""

from __future__ import annotations

from collections.abc import Mapping

from mileage.gateway.admin.app import AdminApp
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.cost_api import CostSource
from tests.support.asgi import Answer, call
from tests.support.synthetic_fleet import SyntheticFleet

__all__ = ["ASSETS", "TOKEN", "UTC_OFFSET_S", "AdminPlane"]

TOKEN = "a-token-of-some-length"
UTC_OFFSET_S = 1_700_000_000
ASSETS = {
    "index.html": b"<h1>dashboard</h1>",
    "cost.html": b"<h1>costs</h1>",
    "login.html": b"<h1>login</h1><!-- error -->",
    "main.js": b"export {};",
    "dashboard.css": b"body {}",
}


class AdminPlane:
    """The application and what is behind it."""

    def __init__(
        self,
        config: AdminConfig | None = None,
        *,
        fleet: SyntheticFleet | None = None,
        costs: CostSource | None = None,
    ) -> None:
        self.now_s = 1_000.0
        self.drift_s = 0.0
        self.fleet = fleet if fleet is not None else SyntheticFleet(now_s=self.now_s)
        self.app = AdminApp(
            self.fleet,
            config if config is not None else AdminConfig(),
            token=TOKEN,
            assets=ASSETS,
            costs=costs,
            clock=lambda: self.now_s,
            wall=lambda: self.now_s + UTC_OFFSET_S + self.drift_s,
        )

    def advance(self, seconds: int) -> None:
        """Let traffic come and the plane tick, second by second."""
        for _ in range(seconds):
            self.now_s += 1
            self.fleet.advance(self.now_s)
            self.app.tick()

    def call(
        self,
        target: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        token: str | None = TOKEN,
    ) -> Answer:
        """One request, with the Bearer token unless another or none is given."""
        fields = dict(headers or {})
        if token is not None:
            fields["authorization"] = f"Bearer {token}"
        return call(self.app, target, method=method, headers=fields, body=body)

    def cookie(self) -> str:
        """Log a browser in and return what it sends as its Cookie header."""
        answer = self.call(f"/?token={TOKEN}", token=None)
        return answer.headers["set-cookie"].partition(";")[0]
