"""The limit on open files: raised as far as the system allows, and what fits below it."""

from __future__ import annotations

import logging
import resource

import msgspec

from mileage.gateway.config import ServerConfig

__all__ = ["fit_connections", "raise_file_limit"]

_RESERVED = 64
"""For the log, the listening socket, the supervisor's channel, and connections being refused."""
_log = logging.getLogger(__name__)


def raise_file_limit() -> int:
    """Every connection is a file: use all that the system allows, and return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fit_connections(config: ServerConfig, files_max: int) -> ServerConfig:
    """The configuration with as many client connections as leave a file for an engine to each.

    Else clients that only hold their connections would take the files that requests of others
    need to reach an engine. `files_max`: of the process; negative: no limit.
    """
    room = max(1, (files_max - _RESERVED) // 2)
    if files_max < 0 or config.connections_max <= room:
        return config
    _log.log(
        logging.WARNING if room < config.connections_max // 2 else logging.DEBUG,
        "the system allows %d open files: %d client connections instead of "
        "server.connections_max = %d (raise it with ulimit -n or LimitNOFILE)",
        files_max,
        room,
        config.connections_max,
    )
    return msgspec.structs.replace(config, connections_max=room)
