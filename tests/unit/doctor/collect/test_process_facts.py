"""What an engine's process tells, by how well each part is known."""

from __future__ import annotations

from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.collect.process_facts import EngineProcess, process_facts
from tests.support.engine_pages import checked


def test_the_log_goes_before_the_command_line_and_that_before_defaults() -> None:
    process = EngineProcess(
        words=("vllm", "serve", "m", "--max-num-seqs", "8"),
        environment={"OMP_NUM_THREADS": "4"},
        log=("Initializing a V1 LLM engine (v0.10.2) with config: enforce_eager=True",),
    )
    merged = merge_facts(process_facts(process, place="http://engine"))
    settings = checked(merged.document)["settings"]
    assert settings["enforce_eager"] is True
    assert settings["max_num_seqs"] == 8
    assert settings["tensor_parallel_size"] == 1
    assert settings["env.OMP_NUM_THREADS"] == 4
    assert settings["env.NCCL_P2P_DISABLE"] is None
    assert merged.sources["settings.enforce_eager"] == "log of http://engine"
    assert merged.sources["settings.max_num_seqs"] == "command line of http://engine"
    assert merged.sources["settings.tensor_parallel_size"] == "defaults of vllm"


def test_the_version_of_the_log_decides_the_defaults() -> None:
    process = EngineProcess(
        words=("vllm", "serve", "m"), log=("vLLM API server version 0.6.3.post1",)
    )
    merged = merge_facts(process_facts(process, place="x"))
    assert merged.document["engine"] == {"name": "vllm", "version": "0.6.3.post1", "variant": "v0"}
    assert merged.document["settings"]["max_num_seqs"] == 256


def test_a_process_of_something_else_tells_nothing() -> None:
    process = EngineProcess(words=("nginx",), environment={"OMP_NUM_THREADS": "4"})
    assert process_facts(process, place="x") == ()
