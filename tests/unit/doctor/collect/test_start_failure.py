"""Why an engine ended: causes by its last lines and its exit code."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.start_failure import failure_cause


@pytest.mark.parametrize(
    ("line", "code", "name", "permanent"),
    [
        pytest.param(
            "OSError: [Errno 98] Address already in use", 1, "port_in_use", True, id="port"
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
