"""The reloader: all or nothing, one at a time, and when files are taken to be written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mileage.cli import reloader as module
from mileage.cli.config import Config
from mileage.cli.config_source import ConfigSource
from mileage.cli.reloader import Reloader
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.supervisor import Confirmed


class Site:
    """A reloader of a file, and what it had applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.applied: list[tuple[int, Config]] = []
        self.at_once = self.at_once_max = 0
        self.now_s = 100.0
        self.write("")
        source = ConfigSource(path, {}, {})
        self.reloader = Reloader(source, source.load(), self._apply, utc_s=lambda: self.now_s)

    def write(self, text: str) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text(text or "# nothing\n")
        draft.replace(self.path)

    async def _apply(self, version: int, config: Config) -> Confirmed:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.applied.append((version, config))
        return Confirmed([7], [])


def with_site(tmp_path: Path, check: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await check(Site(tmp_path / "mileage.toml"))

    asyncio.run(main())


@contextlib.asynccontextmanager
async def running(site: Site) -> AsyncIterator[None]:
    task = asyncio.create_task(site.reloader.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- what files do
        await asyncio.sleep(0.002)


async def looks(site: Site, count: int) -> None:
    """Wait for so many looks at the files."""
    seen = [0]
    look = site.reloader._source.look

    def counted() -> object:
        seen[0] += 1
        return look()

    site.reloader._source.look = counted  # type: ignore[method-assign, assignment]
    await until(lambda: seen[0] >= count)
    site.reloader._source.look = look  # type: ignore[method-assign]


def test_versions_times_and_counts(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        site.now_s = 110.0
        site.write("[slo]\nttft_s = 1\n[server]\nport = 1\n")
        reloaded = await site.reloader.reload("test")
        assert (reloaded.version, reloaded.applied_by) == (2, [7])
        assert reloaded.changed == ["server.port", "slo.ttft_s"]
        assert reloaded.restart_needed == ["server.port"]
        site.now_s = 120.0
        again = await site.reloader.reload("test")
        assert (again.version, again.changed) == (2, ["server.port"])
        status = site.reloader.status()
        assert (status.since_utc_s, status.read_utc_s) == (110.0, 120.0)
        assert (status.reloads_total, status.failures_total) == (2, 0)
        assert [version for version, _ in site.applied] == [2, 2]
        assert site.reloader.config.slo.ttft_s == 1

    with_site(tmp_path, check)


def test_what_is_not_in_order_is_not_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(site: Site) -> None:
        before = site.reloader.config
        site.write("[slo]\nttft_s = 0\n")
        with pytest.raises(ConfigError, match=r"slo\.ttft_s"):
            await site.reloader.reload("test")
        status = site.reloader.status()
        assert f"{site.path}:2: slo.ttft_s" in (status.error or "")
        assert (status.version, status.failures_total, status.reloads_total) == (1, 1, 0)
        assert site.applied == []
        assert site.reloader.config is before
        site.write("")
        await site.reloader.reload("test")
        assert site.reloader.status().error is None

    with caplog.at_level(logging.ERROR):
        with_site(tmp_path, check)
    assert "version 1 stays" in caplog.text


def test_a_bug_in_the_reading_is_told_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(site: Site) -> None:
        def fail() -> Config:
            raise RuntimeError("a bug")

        monkeypatch.setattr(site.reloader._source, "load", fail)
        with pytest.raises(MileageError, match="a bug"):
            await site.reloader.reload("test")
        assert site.reloader.status().failures_total == 1

    with caplog.at_level(logging.ERROR):
        with_site(tmp_path, check)
    assert "RuntimeError" in caplog.text


def test_what_is_hot_may_not_open_what_stays(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        digest = "sha256:" + "0" * 64
        host = '[server]\nhost = "0.0.0.0"\n'
        site.write(f'{host}[tenants.a]\nkey_hashes = ["{digest}"]\n')
        source = ConfigSource(site.path, {}, {})
        reloader = Reloader(source, source.load(), site._apply)
        site.write("")  # loopback without keys: in order by itself, but the host stays
        with pytest.raises(ConfigError, match=r"server\.host"):
            await reloader.reload("test")
        assert site.applied == []

    with_site(tmp_path, check)


def test_one_reload_at_a_time(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        site.write("[slo]\nttft_s = 1\n")
        answers = await asyncio.gather(*(site.reloader.reload("test") for _ in range(5)))
        assert [len(answer.changed) for answer in answers] == [1, 0, 0, 0, 0]
        assert (site.at_once_max, site.reloader.version) == (1, 2)

    with_site(tmp_path, check)


def test_asking_often_reloads_once_more_at_most(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        site.write("[slo]\nttft_s = 1\n[server]\nwatch_config = false\n")
        async with running(site):
            for _ in range(50):
                site.reloader.ask()
            await until(lambda: site.reloader.version == 2)
            assert site.reloader.status().reloads_total <= 2

    with_site(tmp_path, check)


def test_files_are_reloaded_when_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_WATCH_S", 0.005)

    async def check(site: Site) -> None:
        status = site.reloader.status
        async with running(site):
            await looks(site, 5)
            assert status().reloads_total == 0, "nothing was written"
            site.path.unlink()
            await looks(site, 5)
            site.path.write_text("")
            await looks(site, 5)
            assert (status().reloads_total, status().failures_total) == (0, 0)
            site.path.write_text("[slo]\nttft_s = ")
            await until(lambda: status().failures_total == 1)
            await looks(site, 5)
            assert status().failures_total == 1, "told once"
            with site.path.open("a") as file:
                file.write("3\n")
            await until(lambda: site.reloader.version == 2)
            site.write("[server]\nwatch_config = false\n")
            await until(lambda: site.reloader.version == 3)
            site.write("[slo]\nttft_s = 4\n")
            site.reloader.ask()
            await until(lambda: site.reloader.version == 4)
            await looks(site, 3)

    with caplog.at_level(logging.ERROR):
        with_site(tmp_path, check)
