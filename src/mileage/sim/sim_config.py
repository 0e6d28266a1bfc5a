"""SimConfig: how a fleet is simulated, apart from its engines and its policies."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.sim.scaling import ScalingConfig

__all__ = ["SimConfig"]


class SimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a fleet is simulated, apart from its engines and its policies."""

    seed: int = 0
    """Of routing, of the noise of steps, and of errors of estimates."""
    scrape_interval_s: float = 1.0
    """Time between two observations of each replica."""
    patience_s: float | None = None
    """A client leaves that has no first token by then. None: all wait."""
    prompt_error_ratio: float = 0.0
    """Error of the prompt tokens that the controller is told, as a share of the true ones."""
    in_flight_max: int = 100_000
    """Requests that the controller keeps; past it the oldest is given up."""
    scaling: ScalingConfig | None = None
    """When replicas start and stop. None: all are there all the time."""

    def __post_init__(self) -> None:
        require_range("sim.scrape_interval_s", self.scrape_interval_s, 0.01, 3600.0)
        require_range("sim.prompt_error_ratio", self.prompt_error_ratio, 0.0, 1.0)
        require_at_least("sim.in_flight_max", self.in_flight_max, 1)
        if self.patience_s is not None:
            require_positive("sim.patience_s", self.patience_s)
