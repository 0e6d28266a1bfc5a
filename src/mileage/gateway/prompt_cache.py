"""PromptCache: what of a request is for the prefix caches: the salt of its tenant, its blocks."""

from __future__ import annotations

from typing import Final, NamedTuple

from mileage.gateway.bodies import Body
from mileage.gateway.cache_salt import CacheSalts
from mileage.gateway.config import GatewayConfig
from mileage.gateway.prefix_blocks import PrefixBlocks

__all__ = ["CachedPrompt", "PromptCache"]


class CachedPrompt(NamedTuple):
    """Of one request. `salts` is None where its tenant shares what is cached."""

    salts: CacheSalts | None
    blocks: tuple[int, ...]
    block_tokens: int

    def batch_key(self, key: str | None, tenant: str) -> str | None:
        """The key of requests that go upstream in one call, which has one salt."""
        return key if key is None or self.salts is None else f"{key}\0{tenant}"


_UNKNOWN: Final = CachedPrompt(None, (), 0)
"""Of most requests: made once, for every request asks."""


class PromptCache:
    """Looks at each request, by the configuration in force."""

    def __init__(self, config: GatewayConfig) -> None:
        self._blocks = PrefixBlocks(config.control.routing.prefix_block_bytes)
        self.use(config)

    def use(self, config: GatewayConfig) -> None:
        """Go by this configuration from now on; what was learned by blocks of one size stays."""
        routing, salt = config.control.routing, config.cache_salt
        self._salts = None if salt is None else CacheSalts(salt)
        self._by_blocks = routing.policy == "prefix"
        if self._blocks.block_bytes != routing.prefix_block_bytes:
            self._blocks = PrefixBlocks(routing.prefix_block_bytes)

    def look(self, tenant: str, model: str, body: Body, by_blocks: bool) -> CachedPrompt:
        """`by_blocks`: an experiment routes by them."""
        salts = self._salts
        if salts is not None and not salts.salts(tenant):
            salts = None
        if not (by_blocks or self._by_blocks):
            return _UNKNOWN if salts is None else CachedPrompt(salts, (), 0)
        blocks = self._blocks.of(body, model, None if salts is None else tenant)
        return CachedPrompt(salts, blocks, self._blocks.block_tokens if blocks else 0)
