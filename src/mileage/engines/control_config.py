"""EngineControlConfig: whether, and with which token, the governor sets an engine's own limits."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError

__all__ = ["LEASE_MAX_S", "EngineControlConfig"]

LEASE_MAX_S = 3600.0
_LEASE_MIN_S = 1.0


class EngineControlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Have the governor set the limits of this engine itself: vLLM with Mileage's plugin in it."""

    enabled: bool = True
    """False: the gateway's own limit is all there is, as without this section."""
    token_env: str | None = None
    """Name of the environment variable that holds the control's token (what vLLM was started with
    as MILEAGE_CONTROL_TOKEN)."""
    token_file: str | None = None
    """File that holds it, in place of token_env; it is read again after a 401."""
    lease_s: float = 10.0
    """1 to 3600. So long after the gateway was last heard of the engine's start values come back;
    it is renewed after a third of that, and an answer is waited for as long (30 s at most)."""
    step_budget: bool = False
    """Also have the engine decide how many prompt tokens each step has, so that the ITL target of
    `[slo]` is kept; for `governor.model.engine_policies`."""

    def __post_init__(self) -> None:
        if (self.token_env is None) == (self.token_file is None):
            told = "the name of a variable, or token_file (one of the two)"
            raise ConfigError("engines.control.token_env", self.token_env, told)
        require_range("engines.control.lease_s", self.lease_s, _LEASE_MIN_S, LEASE_MAX_S)
