"""Cache salts: one of each tenant, that no client can choose, name or see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.gateway.cache_salt import CacheSalts, CacheSaltSettings

SETTINGS = CacheSaltSettings(key="a-key-that-nobody-else-has", unsalted=frozenset({"open"}))
SALTS = CacheSalts(SETTINGS)


def put(body: dict[str, Any], tenant: str = "a", salts: CacheSalts = SALTS) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(salts.put(msgspec.json.encode(body), tenant))
    return found


def test_each_tenant_has_one_and_the_body_stays_what_it_was() -> None:
    body = {"model": "m", "prompt": "x", "n": 2}
    one = put(body)
    salt = one.pop("cache_salt")
    assert one == body
    assert salt == put({"model": "other"})["cache_salt"]
    assert salt != put(body, "b")["cache_salt"]
    assert salt != put(body, salts=CacheSalts(CacheSaltSettings(key="another")))["cache_salt"]
    assert 22 <= len(salt) <= 128
    assert salt.isalnum()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"cache_salt": "SALT", "model": "m"}', id="plain"),
        pytest.param(b'{"model": "m", "\\u0063ache_salt": "SALT"}', id="escaped"),
        pytest.param(b'{"cache_salt": 1, "model": "m", "cache_salt": "SALT"}', id="twice"),
    ],
)
def test_one_that_a_client_sends_parts_its_own_tenant_only(raw: bytes) -> None:
    own = put({"model": "m"}, "victim")["cache_salt"]
    raw = raw.replace(b"SALT", own.encode())
    found = msgspec.json.decode(SALTS.put(raw, "a"))
    assert found["cache_salt"] not in (own, put({"model": "m"})["cache_salt"])
    assert found["cache_salt"] != msgspec.json.decode(SALTS.put(raw, "b"))["cache_salt"]
    assert found["model"] == "m"


def test_null_is_none_and_names_do_not_run_into_salts() -> None:
    assert put({"model": "m", "cache_salt": None}) == put({"model": "m"})
    one = put({"model": "m", "cache_salt": "b"}, "a")["cache_salt"]
    assert one != put({"model": "m"}, 'a"b"')["cache_salt"]


def test_tenants_may_share_and_nothing_shows_the_key() -> None:
    assert SALTS.salts("a")
    assert not SALTS.salts("open")
    assert SETTINGS.key not in repr(SETTINGS)
