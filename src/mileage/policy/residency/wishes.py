"""AdapterWishes: what people have asked for of LoRA adapters, over the configuration."""

from __future__ import annotations

__all__ = ["AdapterWishes"]


class AdapterWishes:
    """Names of adapters; nothing of it outlives the process."""

    __slots__ = ("_pins", "left_out", "load", "unload")

    def __init__(self) -> None:
        self.load: dict[str, None] = {}
        """To be loaded, for nobody who waits."""
        self.unload: set[str] = set()
        self.left_out: set[str] = set()
        """Asked to go, and not wanted since: these are not loaded ahead of requests."""
        self._pins: dict[str, bool] = {}

    def ask_load(self, name: str) -> None:
        """Load it now."""
        self.welcome(name)
        self.load[name] = None

    def ask_unload(self, name: str) -> None:
        """Unload it, a pinned one, too; it may come back for a request."""
        self.load.pop(name, None)
        self._pins[name] = False
        self.unload.add(name)
        self.left_out.add(name)

    def pin(self, name: str, pinned: bool) -> None:
        """Keep it, or no longer, whatever is configured."""
        self._pins[name] = pinned
        if pinned:
            self.welcome(name)

    def pinned(self, name: str) -> bool | None:
        """What was asked of its pin; None: nothing."""
        return self._pins.get(name)

    def welcome(self, name: str) -> None:
        """It is wanted again."""
        self.unload.discard(name)
        self.left_out.discard(name)

    def forget_pin(self, name: str) -> None:
        """Its entry is another one."""
        self._pins.pop(name, None)

    def forget(self, name: str) -> None:
        """It is another adapter, or none."""
        self.load.pop(name, None)
        self.welcome(name)
