"""Other load generators, each in a virtual environment of its own: GuideLLM, vllm bench serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.machine import pinned
from benchmarks.support.payloads import CHAT_MODEL
from benchmarks.support.stacks import ROOT
from mileage.core.errors import MileageError

__all__ = ["RivalError", "run_guidellm", "run_vllm_bench"]

_TIMEOUT_S = 120.0
_PROMPTS = 2000
_TOKENIZER = Path.home() / ".cache/mileage/vllm/SmolLM2-135M-Instruct.Q4_1"
"""Made by the tests against a real vLLM; its bench cannot make up prompts without one."""
_VLLM_BENCH = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` runs; the command itself does not start with the CPU build."""


class RivalError(MileageError):
    """A program is not installed, or gave no figure; the text says which and why."""


def run_guidellm(
    url: str, *, directory: Path, core: int, connections: int, duration_s: float
) -> float:
    """Whole answers per second that GuideLLM gets. Raises RivalError."""
    program = ROOT / ".venvs/guidellm/bin/guidellm"
    prompts, result = directory / "prompts.csv", directory / "guidellm.json"
    lines = [f"ticket {n}: the pump stops and the lamp blinks twice" for n in range(_PROMPTS)]
    prompts.write_text("\n".join(["prompt", *lines]) + "\n")
    backend = f"kind=openai_http,target={url},model={CHAT_MODEL},stream=false"
    argv = [str(program), "run", "--backend", f"{backend},validate_backend=false"]
    argv += ["--profile", f"kind=concurrent,streams={connections}"]
    argv += ["--constraint", f"kind=max_duration,seconds={duration_s:g}"]
    argv += ["--data", f"kind=csv_file,path={prompts}", "--output", f"kind=json,path={result}"]
    argv += ["--disable-console"]
    _run("GuideLLM", argv, program=program, directory=directory, core=core)
    try:
        (benchmark,) = json.loads(result.read_text())["benchmarks"]
        totals = benchmark["metrics"]["request_totals"]
        rate = float(benchmark["metrics"]["requests_per_second"]["successful"]["mean"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RivalError(f"GuideLLM's result cannot be read: {error!r}") from None
    if totals["errored"] or not rate:
        raise RivalError(f"GuideLLM had {totals['errored']} errors")
    return rate


def run_vllm_bench(
    url: str, *, directory: Path, core: int, connections: int, tokens: int, requests: int
) -> float:
    """Streams of `tokens` events per second that vllm bench serve gets. Raises RivalError."""
    program = ROOT / ".venvs/vllm/bin/python"
    if not _TOKENIZER.exists():
        raise RivalError(f"vllm bench serve needs a tokenizer: there is none at {_TOKENIZER}")
    argv = [str(program), "-c", _VLLM_BENCH, "--backend", "openai-chat", "--base-url", url]
    argv += ["--endpoint", "/v1/chat/completions", "--model", CHAT_MODEL]
    argv += ["--tokenizer", str(_TOKENIZER), "--dataset-name", "random"]
    argv += ["--random-input-len", "30", "--random-output-len", str(tokens)]
    argv += ["--num-prompts", str(requests), "--max-concurrency", str(connections)]
    argv += ["--disable-tqdm", "--save-result", "--result-dir", str(directory)]
    argv += ["--result-filename", "vllm-bench.json"]
    _run("vllm bench serve", argv, program=program, directory=directory, core=core)
    try:
        found = json.loads((directory / "vllm-bench.json").read_text())
        completed, rate = int(found["completed"]), float(found["request_throughput"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RivalError(f"vllm bench serve's result cannot be read: {error!r}") from None
    if completed != requests:
        raise RivalError(f"vllm bench serve completed {completed} of {requests} requests")
    return rate


def _run(name: str, argv: Sequence[str], *, program: Path, directory: Path, core: int) -> None:
    """Run a program to its end on one core, and end all of it where it takes too long."""
    if not program.exists():
        raise RivalError(f"{name} is not installed at {program.relative_to(ROOT)}")
    log = directory / f"{program.name}.log"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    with log.open("wb") as out, pinned(core):
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RivalError(f"{name} did not end within {_TIMEOUT_S:g} s") from None
    finally:
        if process.poll() is None or sys.exc_info()[0] is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0:
        raise RivalError(f"{name} ended with code {code}: {log.read_text()[-500:]}")
