"""`mileage cost bottleneck`: its verdicts, document, table and exit codes, on saved telemetry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mileage.cli import cost_bottleneck_watch
from mileage.cli.cost_bottleneck_watch import WatchPlan, watch
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, TraceError
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.serving_host import HostMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_file import telemetry_lines
from mileage.scrape.telemetry_sampler import TelemetrySampler

LINKS: dict[str, Any] = {"nvlink_bytes_per_s_max": 4.5e11, "nvlink_tx_bytes_per_s": 5e9}
IDLE: dict[str, Any] = {"gpu_util_ratio": 0.9, "sm_active_ratio": 0.3, "dram_active_ratio": 0.2}


def saved(path: Path, count: int = 60, **figures: Any) -> Path:
    """So many looks at one GPU."""
    samples = tuple(
        GpuSample(gpu=GpuId(uuid="GPU-a", number="0"), at_s=i / 10, **figures) for i in range(count)
    )
    path.write_bytes(b"".join(telemetry_lines(Telemetry(samples=samples))))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["cost", "bottleneck", *map(str, arguments)])


@pytest.mark.parametrize(
    ("figures", "outcome", "code"),
    [
        pytest.param(IDLE | LINKS, "none", 0, id="nothing holds it up"),
        pytest.param({"sm_active_ratio": 0.95, "dram_active_ratio": 0.75}, "bound", 1, id="bound"),
        pytest.param({"sm_active_ratio": 0.95}, "not_enough_evidence", 3, id="memory unknown"),
    ],
)
def test_exit_codes(tmp_path: Path, figures: dict[str, Any], outcome: str, code: int) -> None:
    file = saved(tmp_path / "t.jsonl", **figures)
    result = run("--file", file, "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["outcome"] == outcome


def test_the_document_has_the_evidence(tmp_path: Path) -> None:
    file = saved(tmp_path / "t.jsonl", sm_active_ratio=0.95, dram_active_ratio=0.8, **LINKS)
    document = json.loads(run("--file", file, "--json").stdout)
    (gpu,) = document["gpus"]
    assert (gpu["gpu"], gpu["uuid"], gpu["bound"]) == ("0", "GPU-a", ["memory"])
    verdict = gpu["verdicts"][0]
    assert verdict["confidence"] == "high"
    shown = {(e["figure"], e["comparison"], e["threshold"]): e for e in verdict["evidence"]}
    assert shown["dram_active_ratio", ">", 0.6]["mean"] == pytest.approx(0.8)
    assert shown["nvlink_ratio", "<", 0.9]["met_ratio"] == 1.0
    assert gpu["shares"] == {"0": 1.0}
    assert document["window"] == {
        "start_s": 0.0,
        "end_s": 5.9,
        "period_s": pytest.approx(0.1),
        "looks": 60,
    }
    weights = document["weights"]
    assert weights["memory_ratio"] == pytest.approx(1.0 / (0.95 + 1.0 + 5 / 450))
    assert gpu["figures"]["dram_active_ratio"]["samples"] == 60


def test_the_table_names_the_bottleneck_and_what_is_unknown(tmp_path: Path) -> None:
    bound = run("--file", saved(tmp_path / "a", gpu_util_ratio=0.97, mem_copy_util_ratio=0.2))
    assert "GPU 0: compute bound (medium confidence), busy 97.0%" in bound.stdout
    assert "gpu_util_ratio > 0.85" in bound.stdout
    assert "single request" in bound.stdout
    unknown = run("--file", saved(tmp_path / "b", sm_active_ratio=0.95))
    assert "not enough evidence: not known: dram_active_ratio" in unknown.stdout


def test_thresholds_come_from_the_configuration(tmp_path: Path) -> None:
    file = saved(tmp_path / "t", gpu_util_ratio=0.7, mem_copy_util_ratio=0.2)
    config = tmp_path / "mileage.toml"
    config.write_text("[bottleneck]\ngpu_util_min = 0.6\n", "utf-8")
    assert run("--file", file).exit_code == 3
    assert run("--file", file, "--config", config).exit_code == 1


def test_files_are_one_after_another(tmp_path: Path) -> None:
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 95\nDCGM_FI_DEV_MEM_COPY_UTIL{gpu="0"} 10\n'
    files: list[object] = []
    for number in range(12):
        path = tmp_path / f"{number}.txt"
        path.write_text(page, "utf-8")
        files += ["--file", path]
    document = json.loads(run(*files, "--every", "15s", "--json").stdout)
    assert document["window"]["end_s"] == 165.0
    assert document["gpus"][0]["bound"] == ["compute"]


def test_what_was_seen_can_be_saved_and_judged_again(tmp_path: Path) -> None:
    file = saved(tmp_path / "t", sm_active_ratio=0.95, dram_active_ratio=0.1)
    copy = tmp_path / "copy"
    run("--file", file, "--save", copy)
    assert copy.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        pytest.param(["--for", "0s"], ConfigError, "--for", id="no time"),
        pytest.param(["--for", "2h"], ConfigError, "--for", id="too long"),
        pytest.param(["--every", "1ms"], ConfigError, "--every", id="too often"),
        pytest.param(["--dcgm", "nowhere"], ConfigError, "--dcgm", id="no URL"),
        pytest.param(["--file", "/nonexistent"], ConfigError, "--file", id="no file"),
        pytest.param(["--save", "/nonexistent/x"], ConfigError, "--save", id="no place"),
        pytest.param(["--file", __file__], TraceError, "test_cost_bottleneck", id="a bad file"),
    ],
)
def test_wrong_options_are_named(
    arguments: Sequence[str], error: type[Exception], named: str
) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, error)
    assert named in str(result.exception)


class Source:
    """Gives what it was told to."""

    period_min_s = 0.01

    def __init__(self, *looks: Any) -> None:
        self.looks = looks

    def read(self, at_s: float) -> Sequence[Any]:
        return self.looks

    def close(self) -> None:
        """Nothing is held."""


def test_ctrl_c_ends_it_and_what_was_seen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = GpuSample(gpu=GpuId(number="0"), at_s=1.0)
    host = HostMoment(at_s=0.5)
    monkeypatch.setattr(
        cost_bottleneck_watch, "_sources", lambda *_: {"a": Source(gpu), "b": Source(host)}
    )

    def wait(seconds: float) -> None:
        while any(each.status().looks < 1 for each in samplers):
            pass
        raise KeyboardInterrupt

    samplers: list[Any] = []

    def sampler(*arguments: Any, **options: Any) -> Any:
        samplers.append(TelemetrySampler(*arguments, **options))
        return samplers[-1]

    monkeypatch.setattr(cost_bottleneck_watch, "TelemetrySampler", sampler)
    telemetry, states = watch(WatchPlan(url="http://192.0.2.1:8000"), 60.0, wait=wait)
    assert telemetry.samples[0] == gpu
    assert telemetry.hosts[0] == host
    assert sorted(states) == ["a", "b"]
    assert telemetry.missing == {"host": "the server is on another machine"}


def test_a_server_elsewhere_needs_an_exporter() -> None:
    why: dict[str, str] = {}
    plan = WatchPlan(url="http://192.0.2.1:8000")
    sources = cost_bottleneck_watch._sources(plan, None, why)
    assert list(sources) == ["load"]
    assert "--dcgm" in why["gpus"]
    named = WatchPlan(url="http://192.0.2.1:8000", dcgm_urls=("http://a/1", "http://a/2"))
    assert list(cost_bottleneck_watch._sources(named, None, {})) == ["dcgm-0", "dcgm-1", "load"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        pytest.param(WatchPlan(url="http://192.0.2.1:8000"), "the server is", id="the server"),
        pytest.param(
            WatchPlan(url="http://127.0.0.1:1", dcgm_urls=("http://192.0.2.1:9400/metrics",)),
            "the exporter is",
            id="its GPUs",
        ),
    ],
)
def test_this_host_does_not_hold_up_what_is_elsewhere(plan: WatchPlan, why: str) -> None:
    processes, missing = cost_bottleneck_watch._processes(plan)
    assert processes is None
    assert missing["host"].startswith(f"{why} on another machine")
