"""One command benchmarks the embedded engine and a real vLLM: what it sees is what they count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mileage.loadgen.saved_run import SavedRun, read_run
from tests.support.bench_cli import bench
from tests.support.gateway import Gateway
from tests.support.vllm_server import VllmServer, converted_model

pytestmark = pytest.mark.heavy

START_S = 300.0
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 8
COMMAND = (
    *("--rate", "2", "--duration", "5s", "--warmup", "1s", "--ignore-eos"),
    *("--prompt-tokens", str(PROMPT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS)),
    "--json",
)
LATENCIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
NO_GOVERNOR = '[governor]\nmode = "off"\n'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("embedded")
    arguments = ("--threads", "1", "--slots", "4", "--context-tokens", "2048")
    with Gateway(directory, *arguments, config=NO_GOVERNOR, start_s=START_S) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    directory = tmp_path_factory.mktemp("vllm")
    arguments = ("--max-model-len", "2048", "--max-num-seqs", "4")
    model = converted_model(vllm_python)
    with VllmServer(vllm_python, model, directory, *arguments) as server:
        yield server


def benched(url: str, directory: Path, *arguments: str) -> tuple[dict[str, Any], SavedRun]:
    """The document and the saved run of COMMAND."""
    file = directory / "a.mlrun"
    told = bench(url, *COMMAND, "--save", str(file), *arguments)
    assert told.code in (0, 3), told.err  # 3: this machine was too busy for the generator
    document = told.document
    assert document["requests_ok"] >= 5, document
    assert document["requests_failed"] == {}
    return document, read_run(file)


def assert_lengths_are_as_planned(document: dict[str, Any], run: SavedRun) -> None:
    """Every prompt and every answer, to the token."""
    assert document["prompt_tokens"]["ratio"] == 1.0
    for record in run.records:
        assert record.prompt_tokens == PROMPT_TOKENS
        assert record.output_tokens == OUTPUT_TOKENS
        assert sum(record.token_events) == OUTPUT_TOKENS


def assert_means_agree(document: dict[str, Any], run: SavedRun, prefix: str) -> None:
    """Within 5 % of the engine's histograms, which counted the same requests."""
    for name in LATENCIES:
        own = document["engine_means"][name]
        assert own["family"].startswith(prefix)
        assert own["engine_count"] == own["seen_count"], own
        assert own["ratio"] == pytest.approx(1.0, abs=0.05), (name, own)
    assert document["engine_means"]["e2e_s"]["seen_count"] == len(run.records)


def test_the_embedded_engine(gateway: Gateway, tmp_path: Path) -> None:
    page = f"{gateway.listening.admin_url}/metrics"
    document, run = benched(gateway.root, tmp_path, "--metrics-url", page)
    assert_lengths_are_as_planned(document, run)
    assert_means_agree(document, run, "mileage_")
    seen = {record.request_id for record in run.records}
    assert len(seen) == len(run.records)


def test_shared_prefixes_are_found_in_the_engines_cache(gateway: Gateway, tmp_path: Path) -> None:
    page = f"{gateway.listening.admin_url}/metrics"
    ratio = ("--shared-prefix-ratio", "0.75", "--seed", "5", "--metrics-url", page)
    _, run = benched(gateway.root, tmp_path, *ratio)
    assert all(record.prompt_tokens == PROMPT_TOKENS for record in run.records)
    cached = [record.cached_tokens or 0 for record in run.records[-5:]]
    # The template's head and three quarters of the words; the last quarter is each prompt's own.
    # One of them may have been the first in its slot, which has the template's head alone.
    assert sorted(cached)[1] >= 0.5 * PROMPT_TOKENS, cached
    assert max(cached) < PROMPT_TOKENS, cached


def test_a_real_vllm(vllm: VllmServer, tmp_path: Path) -> None:
    document, run = benched(vllm.url, tmp_path)
    assert_lengths_are_as_planned(document, run)
    assert_means_agree(document, run, "vllm:")
    for name in ("prompt_tokens", "output_tokens"):
        assert document["engine_means"][name]["ratio"] == 1.0
    facts = run.meta.options
    assert facts["server"]["kind"] == "vllm"
    assert facts["prompt_lengths"]["source"] == "tokenize"
