"""Keys are put into a configuration file and taken out, and nothing else of it changes."""

from __future__ import annotations

import os
import threading
import tomllib
from pathlib import Path

import pytest

from mileage.cli.key_file import KeyFile
from mileage.core.errors import ConfigError
from mileage.gateway.keys import key_hash

ONE, TWO = key_hash("one"), key_hash("two")

COMMENTED = f"""# Our gateway.
[server]
port = 8080   # behind the proxy

[tenants.team-a]   # the first team
weight = 2.0
key_hashes = [
    "{ONE}",  # laptop
]

# Budgets are per team.
[[tenants.team-a.budgets]]
amount = 5
unit = "usd"
per = "day"

[costs]
usd_per_gpu_hour = 2.5  # spot
"""


def file_with(directory: Path, text: str) -> KeyFile:
    path = directory / "mileage.toml"
    path.write_bytes(text.encode())
    return KeyFile(path)


def lines_gone(before: str, after: str) -> list[str]:
    """Lines of the one that are not in the other."""
    return [line for line in before.splitlines() if line not in after.splitlines()]


@pytest.mark.parametrize(
    ("text", "tenant", "gone"),
    [
        pytest.param("", "team-a", [], id="an empty file"),
        pytest.param("# only a comment\n", "team-a", [], id="a comment"),
        pytest.param("[server]\nport = 1", "team-a", [], id="no newline at the end"),
        pytest.param(COMMENTED, "team-a", [], id="one more key in an array over several lines"),
        pytest.param(COMMENTED, "team-b", [], id="a new tenant beside others"),
        pytest.param("[tenants.team-a]\nweight = 2.0\n", "team-a", [], id="the first key"),
        pytest.param(
            f'[tenants]\nteam-a = {{ key_hashes = ["{ONE}"] }}\n',
            "team-a",
            [f'team-a = {{ key_hashes = ["{ONE}"] }}'],
            id="an inline table",
        ),
        pytest.param(
            f'tenants.team-a.key_hashes = ["{ONE}"]\n',
            "team-a",
            [f'tenants.team-a.key_hashes = ["{ONE}"]'],
            id="a dotted key",
        ),
        pytest.param(
            f'[tenants.x]\nkey_hashes = ["{ONE}"]\n[server]\nport = 1\n[tenants.y]\nweight = 1.0\n',
            "z",
            [],
            id="tables out of order",
        ),
        pytest.param('[tenants."a b"]\nweight = 1.0\n', "a-b", [], id="a quoted name"),
        pytest.param(
            COMMENTED.replace("\n", "\r\n"), "team-b", [], id="line ends of another system"
        ),
    ],
)
def test_a_key_is_added_and_all_else_stays(
    tmp_path: Path, text: str, tenant: str, gone: list[str]
) -> None:
    file = file_with(tmp_path, text)
    file.add(tenant, TWO)
    after = file.path.read_bytes().decode()
    assert file.config().key_hashes[TWO] == tenant
    assert lines_gone(text, after) == gone
    file.remove(tenant, TWO)
    before = tomllib.loads(text)
    before.setdefault("tenants", {}).setdefault(tenant, {}).setdefault("key_hashes", [])
    assert tomllib.loads(file.path.read_bytes().decode()) == before


def test_a_key_is_removed_with_its_line_and_the_comments_of_others_stay(tmp_path: Path) -> None:
    text = COMMENTED.replace("  # laptop\n", f'  # laptop\n    "{TWO}",  # server\n')
    file = file_with(tmp_path, text)
    file.remove("team-a", ONE)
    after = file.path.read_text()
    assert list(file.config().key_hashes) == [TWO]
    assert "# server" in after
    assert "# the first team" in after
    assert "# Budgets are per team." in after


def test_the_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file = file_with(tmp_path, COMMENTED)
    file.path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to("mileage.toml")
    KeyFile(link).add("team-b", TWO)
    assert link.is_symlink()
    assert file.path.stat().st_mode & 0o777 == 0o640
    assert file.config().key_hashes[TWO] == "team-b"
    assert sorted(os.listdir(tmp_path)) == ["link.toml", "mileage.toml"]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = file_with(tmp_path, COMMENTED)
    hashes = [key_hash(str(number)) for number in range(8)]
    threads = [
        threading.Thread(target=KeyFile(file.path).add, args=("team-b", digest))
        for digest in hashes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(file.config().key_hashes) == {ONE, *hashes}


def test_a_change_leaves_the_draft_of_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_with(tmp_path, COMMENTED)
    replace, drafts = os.replace, []

    def replaced(draft: Path, target: Path) -> None:
        replace(draft, target)
        # The new file can be locked from here on: the next change may be at work already.
        draft.write_text("the next one's")
        drafts.append(draft)

    monkeypatch.setattr(os, "replace", replaced)
    file.add("team-b", key_hash("1"))
    assert [draft.read_text() for draft in drafts] == ["the next one's"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("[server\n", "--config", id="no TOML"),
        pytest.param("[server]\nprot = 1\n", "server.prot", id="an unknown key"),
        pytest.param(
            '[tenants.a]\nkey_hashes = ["plain"]\n', "tenants.a.key_hashes", id="a bad hash"
        ),
    ],
)
def test_a_file_that_is_not_in_order_is_left_alone(tmp_path: Path, text: str, key: str) -> None:
    file = file_with(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        file.add("team-a", TWO)
    assert key in str(caught.value)
    assert file.path.read_text() == text
    assert os.listdir(tmp_path) == ["mileage.toml"]


def test_the_last_key_of_a_gateway_for_other_machines_stays(tmp_path: Path) -> None:
    text = f'[server]\nhost = "0.0.0.0"\n[tenants.a]\nkey_hashes = ["{ONE}"]\n'
    file = file_with(tmp_path, text)
    with pytest.raises(ConfigError, match=r"server\.host"):
        file.remove("a", ONE)
    assert file.path.read_text() == text


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config"):
        KeyFile(tmp_path / "none.toml").add("a", ONE)
