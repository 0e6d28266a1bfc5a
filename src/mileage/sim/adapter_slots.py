"""AdapterSlots: which LoRA adapters are on the GPU and in the host's memory."""

from __future__ import annotations

from mileage.policy.residency.choose import make_residency
from mileage.sim.engine_features import AdaptersConfig

__all__ = ["AdapterSlots"]


class AdapterSlots:
    """Adapters of requests that run stay on the GPU; of the others the policy says which goes.

    An adapter comes to the GPU from the host's memory, where it stays, too; it is read into that
    first, where it is not there.
    """

    __slots__ = ("_config", "_gpu", "_host", "_residency", "_users", "fetches", "loads")

    def __init__(self, config: AdaptersConfig, *, loads: int = 0) -> None:
        self._config = config
        self._users: dict[str, int] = {}
        """Requests that run, of each adapter that has any."""
        self._gpu: dict[str, None] = {}
        self._host: dict[str, None] = {}
        self._residency = make_residency(config.residency)
        self.loads, self.fetches = loads, 0
        """Adapters brought to the GPU, and read into the host's memory, so far."""

    def admits(self, adapter: str | None) -> bool:
        """Whether a request with that adapter may run beside those that do."""
        return adapter is None or adapter in self._users or len(self._users) < self._config.slots

    def begin(self, adapter: str | None, now_s: float) -> float:
        """A request with that adapter runs from now on; seconds that the step waits for it."""
        if adapter is None:
            return 0.0
        config, gpu, host = self._config, self._gpu, self._host
        self._users[adapter] = self._users.get(adapter, 0) + 1
        took_s = 0.0
        self._residency.use(adapter, now_s)
        if adapter not in gpu:
            if len(gpu) >= config.slots:
                spare = [each for each in gpu if each not in self._users]
                del gpu[self._residency.leaves(spare, now_s)]
            if adapter not in host:
                if config.host_slots is not None and len(host) >= config.host_slots:
                    # Those on the GPU are in the host's memory as well.
                    spare = [each for each in host if each not in gpu]
                    del host[self._residency.leaves(spare, now_s)]
                self.fetches += 1
                took_s += config.fetch_s
            self.loads += 1
            took_s += config.load_s
        gpu[adapter] = host[adapter] = None
        return took_s

    def end(self, adapter: str | None) -> None:
        """A request with that adapter runs no longer."""
        if adapter is None:
            return
        self._users[adapter] -= 1
        if not self._users[adapter]:
            del self._users[adapter]

    @property
    def step_s(self) -> float:
        """What the adapters of the requests that run add to a step."""
        return self._config.step_s * len(self._users)
