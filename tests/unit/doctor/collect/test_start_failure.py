"""Why an engine ended: causes by its last lines and its exit code."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.start_failure import failure_cause


@pytest.mark.parametrize(
    ("line", "code", "name", "permanent"),
    [
        pytest.param(
            "OSError: [Errno 98] Address already in use", 1, "port_in_use", False, id="some port"
        ),
        pytest.param(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            1,
            "out_of_memory",
            False,
            id="memory of the GPU, as the doctor reads it",
        ),
        pytest.param(
            "ValueError: No available memory for the cache blocks. Try increasing it",
            1,
            "kv_cache_too_small",
            True,
            id="no room for the cache",
        ),
        pytest.param(
            "Invalid repository ID or local directory specified: '/nowhere'",
            1,
            "model_missing",
            True,
            id="no model",
        ),
        pytest.param(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
            1,
            "hub_unreachable",
            False,
            id="no network",
        ),
        pytest.param(
            "llama_model_load: error loading model: unknown model architecture: 'new'",
            1,
            "model_unreadable",
            True,
            id="a kind of model that is not known",
        ),
        pytest.param(
            "E srv load_model: failed to load model, '/m.gguf'",
            1,
            "model_not_loaded",
            False,
            id="llama.cpp's last word, of any cause",
        ),
        pytest.param(
            "/usr/bin/python: No module named 'vllm'", 1, "program_missing", True, id="no engine"
        ),
        pytest.param(
            "api_server.py: error: unrecognized arguments: --max-seqs",
            2,
            "bad_flag",
            True,
            id="flag",
        ),
        pytest.param("INFO all is well", -9, "killed", False, id="killed by the kernel"),
    ],
)
def test_a_known_cause(line: str, code: int, name: str, permanent: bool) -> None:
    cause = failure_cause(["INFO before", line, "INFO after"], code)
    assert cause is not None
    assert (cause.name, cause.permanent) == (name, permanent)


def test_the_hub_is_the_cause_of_a_model_that_is_not_there() -> None:
    lines = [
        "[Errno -3] Temporary failure in name resolution",
        "OSError: Can't load the configuration of 'Qwen/Qwen3-8B'.",
    ]
    cause = failure_cause(lines, 1)
    assert cause is not None
    assert (cause.name, cause.permanent) == ("hub_unreachable", False)


def test_an_engine_that_served_has_no_cause_of_a_start() -> None:
    line = "POST /v1/completions 'error: unrecognized arguments'"
    assert failure_cause([line], 1, serving=True) is None
    oom = failure_cause(["torch.OutOfMemoryError: CUDA out of memory."], 1, serving=True)
    assert oom is not None
    assert oom.name == "out_of_memory"


def test_what_is_not_known_has_no_cause() -> None:
    assert failure_cause(["RuntimeError: something else"], 1) is None
    assert failure_cause([], None) is None


@pytest.mark.parametrize(
    ("line", "permanent"),
    [
        pytest.param(
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address "
            "already in use",
            True,
            id="uvicorn",
        ),
        pytest.param(
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8000",
            True,
            id="llama.cpp",
        ),
        pytest.param("bind 0.0.0.0:8000: Address already in use", True, id="any other"),
        pytest.param(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 41223, useIpv6: false, code: -98, name: EADDRINUSE, "
            "message: address already in use",
            False,
            id="a port within",
        ),
        pytest.param(
            "The server socket has failed to bind to [::]:18000 (errno: 98 - Address already in "
            "use).",
            False,
            id="a longer number",
        ),
        pytest.param(
            "(EngineCore pid=8000) ERROR core.py:8000] OSError: [Errno 98] Address already in use",
            False,
            id="a process, a line of source",
        ),
    ],
)
def test_only_its_own_port_stays_taken(line: str, permanent: bool) -> None:
    cause = failure_cause([line, "INFO listens at port 8000"], 1, port=8000)
    assert cause is not None
    assert (cause.name, cause.permanent) == ("port_in_use", permanent)
    unknown = failure_cause([line], 1)
    assert unknown is not None
    assert not unknown.permanent
