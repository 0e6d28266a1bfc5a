"""Reloading the configuration, as the admin plane asks for it and tells of it."""

from __future__ import annotations

import msgspec

__all__ = ["ConfigStatus", "Reloaded"]


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload came to.

    `version` is that of the configuration that is in force now. `changed`: keys in which what is
    written differs from what ran before; those in `restart_needed` keep their old value until the
    next start. `applied_by` and `unconfirmed` are processes of workers.
    """

    version: int
    changed: list[str]
    restart_needed: list[str]
    applied_by: list[int]
    """Workers that have confirmed this version."""
    unconfirmed: list[int]
    """Workers that have not, within two seconds."""


class ConfigStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force, and the last attempt to reload it."""

    version: int
    """1 at the start; one more with every reload that changes something."""
    since_utc_s: float
    """When this version was applied."""
    read_utc_s: float
    """When it was last found to be what is written."""
    error: str | None = None
    """Why the last reload was refused; None where it was not."""
    restart_needed: list[str] = []
    """Keys that are written otherwise than they are in force: they need a restart."""
    reloads_total: int = 0
    """Reloads that were done."""
    trial: list[str] = []
    """Keys that are on trial: in force for a while, over what is written."""
    trial_until_utc_s: float | None = None
    """When the trial ends by itself; None without one."""
    failures_total: int = 0
    """Reloads that were refused."""
