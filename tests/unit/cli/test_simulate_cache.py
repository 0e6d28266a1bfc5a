"""`mileage simulate cache`: its figures, its table, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mileage.cli.simulate_cache import cache
from mileage.core.errors import ConfigError, TraceError

app = typer.Typer()
app.command()(cache)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "t.jsonl"
    lines = [
        {
            "timestamp": i * 1000,
            "input_length": 1024,
            "output_length": 1,
            "hash_ids": [0, 1 + i % 3],
        }
        for i in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, ConfigError | TraceError):
        raise result.exception
    return result.exit_code, result.output


def test_each_policy_at_each_size(trace: str) -> None:
    code, output = run("--trace", trace, "--size", "50%,4", "--policy", "lru,lru_k_heat", "--json")
    document = json.loads(output.splitlines()[-1])
    assert code == 0
    assert (document["blocks"], document["references"], document["block_tokens"]) == (4, 24, 512)
    cells = [(r["size"], r["blocks_max"], r["policy"]) for r in document["results"]]
    assert cells == [
        (size, blocks, policy)
        for size, blocks in (("50%", 2), ("4", 4))
        for policy in ("lru", "lru_k_heat")
    ]
    lru = document["results"][0]
    assert lru["hit_ratio"] == pytest.approx(11 / 24)  # the root alone comes back in time
    assert lru["optimum_hit_ratio"] == pytest.approx(14 / 24)
    assert lru["share_of_optimum_ratio"] == pytest.approx(11 / 14)
    assert document["results"][2]["share_of_optimum_ratio"] == 1.0


def test_the_table_is_for_people(trace: str) -> None:
    code, output = run("--trace", trace, "--size", "50%")
    assert code == 0
    assert re.search(r"50%\s+2\s+return_aware\s+[\d.]+%\s+58\.3%\s+[\d.]+%", output)


def test_baselines_are_those_of_libcachesim(trace: str) -> None:
    pytest.importorskip("libcachesim")
    code, output = run("--trace", trace, "--size", "4", "--policy", "libcachesim-lru", "--json")
    assert code == 0
    assert json.loads(output.splitlines()[-1])["results"][0]["share_of_optimum_ratio"] == 1.0


def test_a_baseline_without_its_package(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("mileage.cli.cache_baselines.importlib.import_module", missing)
    with pytest.raises(ConfigError, match="pip install libcachesim"):
        run("--trace", trace, "--size", "4", "--policy", "libcachesim-lru")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--size", "0%"), "--size", id="no size"),
        pytest.param(("--size", "101%"), "--size", id="more than all"),
        pytest.param(("--size", "1%"), "at least one of 4 blocks", id="less than a block"),
        pytest.param(("--size", "ten"), "--size", id="no number"),
        pytest.param(("--policy", "return"), "one of return_aware", id="a name that is near"),
        pytest.param(("--policy", "LRU"), "one of lru", id="in other letters"),
        pytest.param(("--policy", ""), "one of lru", id="no name"),
        pytest.param(("--size", "-5%"), "--size", id="below nothing"),
        pytest.param(("--size", "nan"), "--size", id="nan"),
        pytest.param(("--trace", "azure-conv-2032"), "near: azure-conv", id="no trace"),
    ],
)
def test_options_that_cannot_be(trace: str, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run("--trace", trace, *arguments)


def test_a_trace_without_blocks_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrived_s,prompt_tokens,output_tokens\n0,10,1\n")
    with pytest.raises(TraceError, match="prefix blocks"):
        run("--trace", str(path))
