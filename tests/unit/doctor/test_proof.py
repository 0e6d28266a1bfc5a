"""The command that proves a remedy: one that our command line takes, with the load of the facts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.doctor.check import Check
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion, Sign
from mileage.doctor.proof import proof_command


def proof(signal: str, document: dict[str, Any] | None = None) -> str:
    sign = Sign(Check(signal, 1, "> 0", truth=True), 3.0)
    opinion = Opinion(outcome="finding", log_odds=1.0, signs=(sign,), missing=())
    return proof_command(opinion, Evidence(decode_facts(document or {})), None)


@pytest.mark.parametrize(
    ("signal", "workload", "pieces"),
    [
        pytest.param(
            "itl_p99_s", {"concurrency": 64}, ["--concurrency 64", "itl_p99_s"], id="load"
        ),
        pytest.param("ttft_p50_s", {"rate_rps": 2.5}, ["--rate 2.5", "ttft_p99_s"], id="rate"),
        pytest.param("gpu_util_ratio", {}, ["--concurrency 32", "output_"], id="none"),
        pytest.param(
            "gpu_util_ratio",
            {"isl_tokens": {"min": 100, "max": 300}, "osl_tokens": {"min": 5}},
            ["--prompt-tokens 200"],
            id="a bound's middle; no length where one end is open",
        ),
        pytest.param("startup_weights_s", {}, ["--log"], id="a start"),
        pytest.param("replicas_current", {}, ["--for 10m"], id="replicas"),
        pytest.param("cost_recorded_usd", {}, ["--facts"], id="records"),
    ],
)
def test_the_command_fits_the_evidence(
    signal: str, workload: dict[str, Any], pieces: list[str]
) -> None:
    command = proof(signal, {"workload": workload})
    assert all(piece in command for piece in pieces), command


def test_its_options_exist() -> None:
    workload = {
        "rate_rps": 1.0, "isl_tokens": 10, "osl_tokens": 10, "shared_prefix_ratio": 0.5,
    }  # fmt: skip
    for signal in ("itl_p99_s", "startup_weights_s", "replicas_current", "cost_recorded_usd"):
        command = proof(signal, {"workload": workload})
        name = ["bench", "ab"] if " ab " in command else ["doctor"]
        help_text = CliRunner().invoke(app, [*name, "--help"]).stdout
        for option in re.findall(r"--[a-z-]+", command):
            assert option in help_text, (option, command)
