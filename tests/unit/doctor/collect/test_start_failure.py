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
