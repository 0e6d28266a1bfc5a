"""How one life of an engine ended: its cause, its code, and whether another start can help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mileage.doctor.collect.start_failure import FailureCause, failure_cause
from mileage.engines.launch.launch_command import LaunchCommand

__all__ = ["NEVER_READY", "Verdict", "judge"]

NEVER_READY: Final = 1
"""Exit code of an engine that was ended because it did not become ready."""
_UNASKED: Final = FailureCause(
    "ended_unasked",
    "it ended by itself, though with exit code 0, as vLLM does when its engine core has died",
    False,
)
_UNASKED_EARLY: Final = _UNASKED._replace(
    told="it ended by itself, with exit code 0, before it had given a token: a server stays"
)
_MISSING: Final = "program_missing"
_UNASKED_CODE: Final = 1
"""What the launcher makes of an exit code of 0 that nobody asked for."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`shown_code`: as the engine ended; `exit_code`: what the launcher makes of it.

    `permanent`: another start ends the same way; `meant`: it was to end, though not told to.
    """

    exit_code: int
    shown_code: int
    ready: bool
    asked: bool
    permanent: bool
    meant: bool
    cause: FailureCause | None


def judge(
    command: LaunchCommand,
    code: int,
    never: FailureCause | None,
    *,
    lines: Sequence[str],
    ready: bool,
    asked: bool,
    gave_token: bool,
    served_before: bool,
) -> Verdict:
    """What the exit code and the last lines of its log say.

    `never`: why it did not become ready, where it was ended for that. `gave_token`: in this life;
    `served_before`: in an earlier one. A launch that has served is never over for a cause that
    looks permanent: its command is right, and what is missing (a mount, a driver, the hub) may
    come back. What an engine wrote since its first token is no story of a start either: requests
    stand in it, too.
    """
    # Of a program that nobody knows; a server that is known ends by itself only by a fault.
    meant = code == 0 and never is None and ready and command.kind == "command"
    cause: FailureCause | None = None
    if never is not None:
        cause, code = never, NEVER_READY
    elif not asked and not meant:
        cause = failure_cause(lines, code, port=command.port, serving=gave_token)
        if cause is None and code == 0:
            cause = _UNASKED if gave_token else _UNASKED_EARLY
        if cause is not None and cause.name == _MISSING:
            cause = cause._replace(told=f"{cause.told}: {command.missing_hint}")
    unasked = code == 0 and not (asked or meant)
    return Verdict(
        exit_code=_UNASKED_CODE if unasked else code,
        shown_code=code,
        ready=ready,
        asked=asked,
        permanent=cause is not None and cause.permanent and not (gave_token or served_before),
        meant=meant,
        cause=cause,
    )
