"""URLs of the configuration are shown without what only their owner may know."""

from __future__ import annotations

import msgspec

from mileage.cli.config import Config
from mileage.cli.public_config import public_config
from mileage.engines.config import EngineConfig


def test_no_url_of_an_engine_is_shown_with_its_password() -> None:
    urls = {
        field.name: "http://user:secret@host:1/x?token=secret"
        for field in msgspec.structs.fields(EngineConfig)
        if field.name.endswith("url")
    }
    assert len(urls) >= 3
    engine = msgspec.convert({"kind": "vllm", **urls}, EngineConfig)
    shown = public_config(Config(engines=(engine,)))
    assert "secret" not in str(shown)
    assert shown["engines"][0]["dcgm_url"] == "http://host:1/x"
