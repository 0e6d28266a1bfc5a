"""What of the configuration anybody who may open the admin plane may see."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage.cli.config import Config
from mileage.storage.postgres_address import display_address
from mileage.wire.url import display_url

__all__ = ["public_config"]


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without secrets: of keys their number, of URLs what is public."""
    public: dict[str, Any] = msgspec.to_builtins(config)
    public["admin"].pop("token")
    public["tenants"] = {
        name: {"keys": len(tenant.key_hashes)} for name, tenant in config.tenants.items()
    }
    if config.ledger.database is not None:
        public["ledger"]["database"] = display_address(config.ledger.database)
    for engine in public["engines"]:
        for key in [key for key in engine if key.endswith("url")]:
            if engine[key] is not None:
                engine[key] = display_url(engine[key])
        for key in ("token_env", "token_file"):
            (engine["control"] or {}).pop(key, None)
    return public
