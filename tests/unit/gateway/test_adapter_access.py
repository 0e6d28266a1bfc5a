"""Who may ask for which adapter, where, and what an engine is told of it."""

from __future__ import annotations

import msgspec
import pytest

from mileage.gateway.adapter_access import AdapterAccess
from mileage.gateway.bodies import with_lora
from mileage.gateway.refusals import Refusal
from mileage.policy.residency.adapters import AdapterConfig

ADAPTERS = (
    AdapterConfig(name="all", path="/all", base="m"),
    AdapterConfig(name="own", path="/own", base="m", tenant="t"),
)


def test_the_adapter_of_another_tenant_is_not_there() -> None:
    access = AdapterAccess(ADAPTERS, None)
    access.check("own", "t", "embeddings")
    with pytest.raises(Refusal) as refused:
        access.check("own", "u", "chat")
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert access.seen_by("u", ["m", "all", "own"]) == ["m", "all"]
    assert (access.base("own"), access.base("m")) == ("m", None)


def test_an_endpoint_where_the_engine_takes_none_is_told_as_such() -> None:
    access = AdapterAccess(ADAPTERS, ("chat",))
    access.check("all", "t", "chat")
    with pytest.raises(Refusal) as refused:
        access.check("all", "t", "messages")
    assert refused.value.status == 501


@pytest.mark.parametrize(
    ("body", "field", "sent"),
    [
        pytest.param(b'{"a":1}', b"[1]", {"lora": [1], "a": 1}, id="chosen by us"),
        pytest.param(b'{"a":1}', None, {"a": 1}, id="none"),
        pytest.param(b'{"lora":[9],"a":1}', b"[1]", {"lora": [1], "a": 1}, id="never by clients"),
        pytest.param(b'{"lora":[9],"a":1}', None, {"a": 1}, id="not by clients either"),
        pytest.param(b'{"l\\u006fra":[9],"a":1}', None, {"a": 1}, id="nor spelt otherwise"),
    ],
)
def test_the_field_lora(body: bytes, field: bytes | None, sent: dict[str, object]) -> None:
    found = msgspec.json.decode(with_lora(body, field))
    assert found == sent | ({} if field is None else {"cache_prompt": True})


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        pytest.param(b"[1]", {"cache_prompt": False, "lora": [1], "a": 1}, id="told by which"),
        pytest.param(None, {"a": 1}, id="an engine that is not told by which adapter has no cache"),
    ],
)
def test_a_client_may_forbid_the_cache(field: bytes | None, sent: dict[str, object]) -> None:
    found = msgspec.json.decode(with_lora(b'{"cache_prompt":false,"a":1}', field))
    assert found == sent
