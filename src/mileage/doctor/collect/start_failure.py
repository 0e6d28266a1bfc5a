"""Why an engine did not start, or ended: causes that its log names, and what to do of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from mileage.doctor.collect.log_line import log_lines
from mileage.doctor.collect.log_troubles import LogTroubles

__all__ = ["FailureCause", "failure_cause"]

SIGKILL: Final = -9


class FailureCause(NamedTuple):
    """`name` is a word for machines; `permanent`: another start ends the same way."""

    name: str
    told: str
    permanent: bool


class _Sign(NamedTuple):
    cause: FailureCause
    pattern: re.Pattern[str]


_OUT_OF_MEMORY: Final = FailureCause(
    "out_of_memory",
    "the accelerator's memory is too small: lower the model's length, the requests at once, or "
    "its share of the memory that others need",
    False,
)
_KILLED: Final = FailureCause(
    "killed",
    "killed by SIGKILL, as the kernel does where the host's memory ends (see `dmesg`)",
    False,
)

_OWN_PORT: Final = FailureCause("port_in_use", "another program has its port", True)

_SIGNS: Final = (
    _Sign(
        # Engines also open ports within, by chance: the next start has others.
        FailureCause("port_in_use", "another program has a port that it wanted", False),
        re.compile(
            r"Address already in use|address already in use|couldn't bind HTTP server socket"
            r"|\[Errno 98\]"
        ),
    ),
    _Sign(
        FailureCause(
            "kv_cache_too_small",
            "the memory that is left for the KV cache is too small: raise the share of the memory, "
            "or lower the model's length",
            True,
        ),
        re.compile(
            r"No available memory for the cache blocks|[Ll]arger than the available KV cache memory"
            r"|KV cache is needed, which is larger than|Not enough memory\. Please try to increase"
        ),
    ),
    _Sign(  # before what follows of it: without the hub, a model is said to be none
        FailureCause(
            "hub_unreachable",
            "the hub that it fetches the model from cannot be reached, and its cache here has not "
            "all of it",
            False,
        ),
        re.compile(
            r"We couldn't connect to 'https?://|Temporary failure in name resolution"
            r"|Name or service not known|Max retries exceeded with url|LocalEntryNotFoundError"
            r"|outgoing traffic has been disabled|error: failed to get the model info from"
        ),
    ),
    _Sign(
        FailureCause(
            "model_unreadable",
            "the model's file is damaged, or of a kind that this release does not know",
            True,
        ),
        re.compile(
            r"unknown model architecture|invalid magic characters|model is corrupted or incomplete"
            r"|SafetensorError|HeaderTooLarge|Model architectures \[.*\] are not supported"
        ),
    ),
    _Sign(
        FailureCause("model_missing", "the model is not there, or may not be read", True),
        re.compile(
            r"is not a local folder and is not a valid model identifier|Repository Not Found"
            r"|RepositoryNotFoundError|Can't load the configuration of|Incorrect path_or_model_id"
            r"|Invalid repository ID or local directory|failed to open GGUF file"
            r"|does not appear to have a file named|gated repo|Cannot find any model weights"
        ),
    ),
    _Sign(
        FailureCause("program_missing", "the engine's program is not there", True),
        re.compile(
            r"No module named '?(?:vllm|sglang|tensorrt_llm)\b|: cannot be started: No such file"
        ),
    ),
    _Sign(
        FailureCause("bad_flag", "it does not know one of the flags, or its value", True),
        re.compile(
            r"error: unrecognized arguments|error: argument |error: invalid argument"
            r"|error: the following arguments are required"
            r"|is greater than the derived max_model_len"
        ),
    ),
    _Sign(
        FailureCause("no_gpu", "it finds no GPU, or no driver that fits", True),
        re.compile(
            r"Found no NVIDIA driver|no CUDA-capable device|CUDA driver version is insufficient"
            r"|No CUDA GPUs are available|Failed to infer device type"
        ),
    ),
    _Sign(  # by llama.cpp, of whatever cause; where it names one, that was found above
        FailureCause("model_not_loaded", "the model was not loaded: its log says why", False),
        re.compile(r"failed to load model"),
    ),
)
"""In the order in which they are looked for: an engine that found no port tells of more."""


def failure_cause(
    lines: Sequence[str],
    exit_code: int | None,
    *,
    port: int | None = None,
    serving: bool = False,
) -> FailureCause | None:
    """The cause that the last lines of a log and the exit code (-9: SIGKILL) tell; None: unknown.

    `port` is the one that it serves at: another start does not help where a line says that this
    one is in use. Memory that ended is what the doctor's reader of troubles takes for it.
    `serving`: it had given tokens, so that it did not fail as starts do: no cause of those is
    looked for, and its lines may have words of requests in them.
    """
    troubles = LogTroubles()
    for line in log_lines(lines):
        troubles.take(line)
    if "oom_count" in troubles.signals():
        return _OUT_OF_MEMORY
    for sign in _SIGNS if not serving else ():
        found = [line for line in lines if sign.pattern.search(line)]
        if not found:
            continue
        if sign.cause.name == _OWN_PORT.name and any(_names(line, port) for line in found):
            return _OWN_PORT
        return sign.cause
    return _KILLED if exit_code == SIGKILL else None


def _names(line: str, port: int | None) -> bool:
    """Is this port in the line, as `port: 8000`, `[::]:8000` or `('127.0.0.1', 8000)`?

    Not as the number of a process or of a line of source.
    """
    if port is None:
        return False
    before = r"(?:\bport\W{0,3}|[\w\]*]:|['\"],\s*)(?<!\.py:)(?<!\.cpp:)"
    return re.search(rf"{before}{port}(?!\d)", line, re.IGNORECASE) is not None
