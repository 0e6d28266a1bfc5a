"""The part of prometheus.yml that has Prometheus read the gateway and its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["scrape_yaml"]

_HEADER = b"# Made by `mileage deploy prometheus`: a whole prometheus.yml, or parts for yours.\n"


def scrape_yaml(targets: Sequence[str], rules: str, *, token_file: str | None) -> bytes:
    """A configuration that reads the admin planes at `targets` (HOST:PORT) every 15 s.

    `rules`: the rule file's name, beside it. `token_file`: on Prometheus's machine, with the admin
    token; not needed where a plane is on loopback or `metrics_public` is true. Raises ConfigError
    for a target that is none.
    """
    for target in targets:
        host, colon, port = target.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65_536) or "/" in target:
            raise ConfigError("--target", target, "HOST:PORT of an admin plane")
    job: dict[str, Any] = {"job_name": "mileage", "static_configs": [{"targets": list(targets)}]}
    if token_file is not None:
        job["authorization"] = {"credentials_file": token_file}
    return _HEADER + msgspec.yaml.encode(
        {
            "global": {"scrape_interval": "15s", "evaluation_interval": "30s"},
            "rule_files": [rules],
            "scrape_configs": [job],
        }
    )
