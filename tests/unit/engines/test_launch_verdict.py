"""How an engine ended, and whether another start can help."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.start_failure import FailureCause
from mileage.engines.launch.launch_command import LaunchKind, launch_command
from mileage.engines.launch.verdict import Verdict, judge

MISSING = "ValueError: Invalid repository ID or local directory specified: '/none'"
NEVER = FailureCause("key_refused", "lets nobody in", True)


def verdict(
    line: str,
    code: int,
    *,
    kind: LaunchKind = "vllm",
    never: FailureCause | None = None,
    served: str = "never",
    asked: bool = False,
) -> Verdict:
    return judge(
        launch_command(kind, ["m"], port=8000),
        code,
        never,
        lines=[line],
        ready=served == "now",
        asked=asked,
        gave_token=served in ("now", "warming"),
        served_before=served == "before",
    )


@pytest.mark.parametrize(
    ("served", "cause", "permanent"),
    [
        pytest.param("never", "model_missing", True, id="it never served: over"),
        pytest.param("before", "model_missing", False, id="it served before: its mount is away"),
        pytest.param("warming", None, False, id="it gave a token: no story of a start"),
        pytest.param("now", None, False, id="it serves: the line may be a request's"),
    ],
)
def test_only_a_start_that_never_served_is_over(
    served: str, cause: str | None, permanent: bool
) -> None:
    found = verdict(MISSING, 1, served=served)
    assert (found.cause and found.cause.name, found.permanent) == (cause, permanent)


def test_a_key_that_is_refused_after_it_has_served_is_tried_again() -> None:
    assert verdict("", 0, never=NEVER).permanent
    assert not verdict("", 0, never=NEVER, served="before").permanent


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        pytest.param("torch.OutOfMemoryError: CUDA out of memory.", 1, "out_of_memory", id="GPU"),
        pytest.param("", -9, "killed", id="killed"),
        pytest.param("", 0, "ended_unasked", id="exit code 0 that nobody asked for"),
    ],
)
def test_causes_of_an_engine_that_served(line: str, code: int, name: str) -> None:
    found = verdict(line, code, served="now")
    assert found.cause is not None
    assert found.cause.name == name
    assert found.exit_code == (code or 1)
    assert found.shown_code == code


def test_a_command_may_end_with_0_once_it_served_and_whoever_is_asked_to() -> None:
    assert verdict("", 0, kind="command", served="now").meant
    early = verdict("", 0, kind="command")
    assert early.cause is not None
    assert "before it had given a token" in early.cause.told
    assert not early.meant
    asked = verdict(MISSING, 0, asked=True)
    assert (asked.exit_code, asked.cause) == (0, None)
