"""A headless Chromium, and an admin plane with a synthetic fleet for it to look at."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from mileage.dashboard.assets import load_assets
from mileage.gateway.admin.app import AdminApp
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.cost_api import CostSource
from mileage.gateway.admin.server import serve_admin
from tests.support.synthetic_fleet import SyntheticFleet

__all__ = ["TOKEN", "WAIT_S", "LivePlane", "Serve", "chromium", "live_planes"]

TOKEN = "a-token-of-some-length"
WAIT_S = 60.0
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
)


@contextlib.contextmanager
def chromium(profile: Path, *, width: int = 1440, height: int = 900) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own; skips where Chromium or its driver is absent."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver here: apt install chromium chromium-driver")
    options = Options()
    options.binary_location = binary
    for switch in (*_SWITCHES, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.set_page_load_timeout(WAIT_S)
        browser.set_script_timeout(WAIT_S)
        yield browser
    finally:
        browser.quit()


class LivePlane:
    """An admin plane on a real socket in a thread, whose fleet has traffic once a second.

    `history_s` of traffic lies before the start. `start` and `stop` may be called again, on the
    same port, as when a gateway is started anew.
    """

    def __init__(
        self, fleet: SyntheticFleet, *, history_s: int = 60, costs: CostSource | None = None
    ) -> None:
        self.fleet, self.port, self._costs = fleet, 0, costs
        self._history_s = history_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Serve, and return when it listens."""
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def stop(self) -> None:
        """Stop serving; the port stays ours for the next start."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()

    def do(self, change: Callable[[], object]) -> None:
        """Make a change in the plane's own thread, and wait for it."""
        assert self._loop is not None
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(WAIT_S)

    def hang(self, seconds: float) -> None:
        """Block the plane's event loop, as a gateway that hangs."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        clock = _Clock(time.monotonic() - self._history_s)
        wall_offset_s = time.time() - time.monotonic()
        config = AdminConfig(port=self.port)
        app = AdminApp(
            self.fleet,
            config,
            token=TOKEN,
            assets=load_assets(),
            costs=self._costs,
            clock=clock,
            wall=lambda: clock() + wall_offset_s,
        )
        while clock.past_s is not None:
            self.fleet.advance(clock())
            app.tick()
            clock.step()
        server = await serve_admin(app, config)
        self.port = server.port
        self._ready.set()
        while not self._stopping.is_set():
            self.fleet.advance(time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
        await server.stop()


class _Clock:
    """A monotonic clock that begins in the past and is stepped up to now; then the real one."""

    def __init__(self, past_s: float) -> None:
        self.past_s: float | None = past_s

    def __call__(self) -> float:
        return time.monotonic() if self.past_s is None else self.past_s

    def step(self) -> None:
        later_s = self() + 1.0
        self.past_s = later_s if later_s < time.monotonic() else None


class Serve(Protocol):
    """Starts a plane; the options are those of SyntheticFleet."""

    def __call__(
        self, *, history_s: int = 60, costs: CostSource | None = None, **options: Any
    ) -> LivePlane:
        """Serve with that much traffic behind it."""
        ...


@contextlib.contextmanager
def live_planes() -> Iterator[Serve]:
    """Start planes; what was started is stopped at the end."""
    started: list[LivePlane] = []

    def start(*, history_s: int = 60, costs: CostSource | None = None, **options: Any) -> LivePlane:
        fleet = SyntheticFleet(now_s=time.monotonic() - history_s, **options)
        plane = LivePlane(fleet, history_s=history_s, costs=costs)
        plane.start()
        started.append(plane)
        return plane

    try:
        yield start
    finally:
        for plane in started:
            plane.stop()
