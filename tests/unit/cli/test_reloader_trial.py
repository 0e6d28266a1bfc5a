"""Settings on trial: in force over what is written, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mileage.cli import reloader as module
from mileage.cli.config import Config
from mileage.cli.config_source import ConfigSource
from mileage.cli.reloader import Reloader
from mileage.core.errors import ConfigError
from mileage.gateway.admin.trial import Trial, dotted
from mileage.gateway.supervisor import Confirmed


class Site:
    """A reloader of a file, and the configurations that it had applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.applied: list[Config] = []
        self.write('[governor]\npolicy = "static"\n[slo]\nttft_s = 2.0\n')
        source = ConfigSource(path, {"slo.itl_s": 0.5}, {})
        self.reloader = Reloader(source, source.load(), self._apply, utc_s=lambda: 100.0)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    async def _apply(self, version: int, config: Config) -> Confirmed:
        self.applied.append(config)
        return Confirmed([7], [])

    async def tries(self, for_s: float = 60.0, **settings: Any) -> None:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        await self.reloader.try_settings(Trial(settings=named, for_s=for_s))

    @property
    def policy(self) -> str:
        return self.reloader.config.governor.policy


def with_site(tmp_path: Path, check: Callable[[Site], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(check(Site(tmp_path / "mileage.toml")), 60))


def test_settings_stand_over_file_and_flags_until_the_trial_ends(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        await site.tries(governor__policy="aimd", slo__itl_s=0.25)
        assert site.policy == "aimd"
        assert site.reloader.config.slo.itl_s == 0.25
        assert site.reloader.config.slo.ttft_s == 2.0
        status = site.reloader.status()
        assert (status.trial, status.trial_until_utc_s) == (["governor.policy", "slo.itl_s"], 160.0)
        assert status.version == 2
        await site.tries()
        assert site.policy == "static"
        assert site.reloader.config.slo.itl_s == 0.5
        assert (site.reloader.status().trial, site.reloader.status().trial_until_utc_s) == (
            [],
            None,
        )

    with_site(tmp_path, check)


def test_another_trial_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        await site.tries(governor__policy="aimd")
        await site.tries(slo__ttft_s=1.0)
        assert site.policy == "static"
        assert site.reloader.config.slo.ttft_s == 1.0

    with_site(tmp_path, check)


def test_a_file_that_is_written_meanwhile_does_not_end_the_trial(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        await site.tries(governor__policy="aimd")
        site.write('[governor]\npolicy = "model"\n[slo]\nttft_s = 3.0\n')
        await site.reloader.reload("asked for")
        assert site.policy == "aimd"
        assert site.reloader.config.slo.ttft_s == 3.0
        await site.tries()
        assert site.policy == "model"

    with_site(tmp_path, check)


def test_a_setting_that_is_not_in_order_changes_nothing(tmp_path: Path) -> None:
    async def check(site: Site) -> None:
        await site.tries(governor__policy="aimd")
        for settings in ({"governor__policy": "nonsense"}, {"governor__nothing": 1}):
            with pytest.raises(ConfigError) as error:
                await site.tries(**settings)
            assert "the settings on trial" in str(error.value)
        assert site.policy == "aimd"
        assert site.reloader.status().trial == ["governor.policy"]
        assert len(site.applied) == 1

    with_site(tmp_path, check)


def test_a_trial_that_nobody_ends_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WATCH_S", 0.005)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)

    async def check(site: Site) -> None:
        await site.tries(for_s=0.02, governor__policy="aimd")
        site.write("[governor\n")  # out of order, so that it cannot end at once
        running = asyncio.create_task(site.reloader.run())
        await asyncio.sleep(0.1)
        assert site.policy == "aimd"
        site.write('[governor]\npolicy = "model"\n')
        while site.reloader.status().trial:  # noqa: ASYNC110 -- it is time that changes it
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert site.policy == "model"

    with_site(tmp_path, check)


@pytest.mark.parametrize(
    ("settings", "for_s", "key"),
    [
        pytest.param({"tenants.a.keys": []}, 1.0, "set", id="who may ask"),
        pytest.param({"engines": []}, 1.0, "set", id="where requests are sent"),
        pytest.param({"governor": {}}, 1.0, "set", id="a section as a whole"),
        pytest.param({"governor..x": 1}, 1.0, "set", id="an empty name"),
        pytest.param({"slo.ttft_s": 1}, 0.0, "for_s", id="for no time"),
        pytest.param({"slo.ttft_s": 1}, 1e9, "for_s", id="for ever"),
    ],
)
def test_what_cannot_be_tried(settings: dict[str, Any], for_s: float, key: str) -> None:
    with pytest.raises(ConfigError) as error:
        Trial(settings=settings, for_s=for_s)
    assert error.value.key == key


def test_tables_are_told_by_dotted_keys() -> None:
    tree = {"governor": {"policy": "aimd", "aimd": {"backoff": 0.5}}, "slo.ttft_s": 1}
    assert dotted(tree) == {
        "governor.policy": "aimd",
        "governor.aimd.backoff": 0.5,
        "slo.ttft_s": 1,
    }
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"x": deep, "y": 1}
    with pytest.raises(ConfigError, match="within each other"):
        dotted(deep)
