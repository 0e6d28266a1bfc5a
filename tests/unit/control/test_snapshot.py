"""Snapshots: a controller goes on from one as if nothing had been; hostile bytes run nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.control import snapshot
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.control.flight import Flight
from mileage.control.snapshot import dump_state, restore_state
from mileage.core.errors import TraceError
from mileage.core.events import Arrived, Finished, FirstToken, ReplicaUp
from mileage.core.request import Request
from mileage.policy.breaker import Breaker, BreakerConfig
from mileage.policy.limits.limit import LimitDecision
from tests.support.journals import request


def busy(seed: int = 1, in_flight: int = 200, **governor: Any) -> Controller:
    """A controller with requests in flight, held and merged, of several tenants."""
    controller = Controller(
        ("a", "b", "c"),
        config=ControlConfig(governor=GovernorConfig(**governor)),
        random=Random(seed),
    )
    for name in ("a", "b", "c"):
        controller.handle(ReplicaUp(name, ("llama",)), 0.0)
    for number in range(in_flight):
        arrived = Arrived(
            request(
                number,
                tenant=f"t{number % 7}",
                arrived_s=0.01 * number,
                merge_key=f"k{number // 3}" if number % 5 else None,
            )
        )
        controller.handle(arrived, 0.01 * number)
    return controller


def go_on(controller: Controller) -> list[object]:
    """What it does with what follows."""
    done: list[object] = []
    for number in range(0, 200, 2):
        now_s = 10.0 + 0.01 * number
        done += controller.handle(FirstToken(number), now_s)
        done += controller.handle(Finished(number, 100, None, 20), now_s + 0.005)
        done += controller.handle(Arrived(request(1000 + number, arrived_s=now_s)), now_s + 0.006)
    return [*done, controller.replica_states(), controller.in_flight]


@pytest.mark.parametrize("governor", [{}, {"limit_max": 4}, {"mode": "observe"}, {"mode": "off"}])
def test_a_restored_controller_goes_on_as_the_one_it_was_taken_of(governor: dict[str, Any]) -> None:
    controller = busy(**governor)
    restored = restore_state(dump_state(controller), "a.mjl")
    assert isinstance(restored, Controller)
    again = restore_state(dump_state(restored), "a.mjl")
    assert isinstance(again, Controller)
    expected = go_on(controller)
    assert go_on(restored) == expected
    assert go_on(again) == expected
    assert controller.failure is None


def test_a_state_of_many_held_requests_is_no_deep_recursion() -> None:
    controller = busy(in_flight=3000, limit_max=1, reject_late=False, queue_wait_max_s=1e6)
    assert controller.governor.held > 500
    restored = restore_state(dump_state(controller), "a.mjl")
    assert isinstance(restored, Controller)
    assert restored.governor.held == controller.governor.held


def test_plain_values_come_back_as_they_were() -> None:
    random = Random(7)
    value = {
        "numbers": [0, -1, 255, 65_536, 1 << 40, -(1 << 70), 0.1, -0.0, float("inf")],
        "texts": ["", "é", "x" * 300, b"", b"y" * 300],
        "constants": (None, True, False, ()),
        "sets": [set(), {1, 2}, frozenset({("a", 1)})],
        "containers": [deque([1, 2], 5), OrderedDict(a=1), defaultdict(list, b=[2])],
        "structs": [LimitDecision(3, "why"), request(1, prefix_key=5), BreakerConfig(open_s=0.5)],
        "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    }
    shared = [value, value, random, random.random]
    restored = restore_state(dump_state(shared), "a.mjl")
    assert isinstance(restored, list)
    assert restored[0] == value
    assert restored[0] is restored[1]
    assert restored[3].__self__ is restored[2]
    assert type(restored[0]["containers"][2]) is defaultdict
    assert restored[0]["containers"][0].maxlen == 5
    draws = [random.random() for _ in range(5)]
    assert [restored[3]() for _ in range(5)] == draws


def test_an_object_that_holds_itself_comes_back() -> None:
    breaker = Breaker(BreakerConfig())
    breaker._open_s = breaker  # type: ignore[assignment]
    restored = restore_state(dump_state(breaker), "a.mjl")
    assert isinstance(restored, Breaker)
    assert restored._open_s is restored  # type: ignore[comparison-overlap]


class Evil:
    """Pickles into a call of anything."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


class EvilState:
    """Pickles into one of our objects, with a state of its choice."""

    def __init__(self, cls: type, state: object) -> None:
        self._cls, self._state = cls, state

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (self._cls,), self._state


ATTACKS: list[Any] = [
    pytest.param(lambda path: Evil(os.system, f"touch {path}"), id="a shell command"),
    pytest.param(lambda path: Evil(eval, f"open({str(path)!r}, 'w')"), id="eval"),
    pytest.param(lambda path: Evil(open, str(path), "w"), id="open"),
    pytest.param(lambda path: Evil(Path.touch, path), id="a method of the library"),
    pytest.param(lambda path: Evil(getattr, Breaker, "__init__"), id="an attribute of a class"),
    pytest.param(lambda path: Evil(getattr, Random(1), "__class__"), id="a class by its instance"),
    pytest.param(lambda path: Evil(getattr, Random(1), "seed"), id="another method of a Random"),
    pytest.param(lambda path: Evil(__import__, "os"), id="an import"),
    pytest.param(lambda path: Evil(Breaker, BreakerConfig()), id="a constructor of ours"),
    pytest.param(lambda path: Evil(Random, 5), id="a Random with a seed"),
    pytest.param(lambda path: Evil(BreakerConfig, "x"), id="a struct with arguments it refuses"),
    pytest.param(lambda path: Evil(pickle.loads, b"N."), id="another pickle"),
    pytest.param(lambda path: Evil(msgspec.json.decode, b"1"), id="a library function"),
    pytest.param(lambda path: path, id="a path"),
    pytest.param(lambda path: msgspec.json.Decoder, id="a class of a library"),
    pytest.param(lambda path: os.system, id="a function that is not called"),
    pytest.param(lambda path: dump_state, id="a function of ours"),
    pytest.param(lambda path: {1: complex(1, 2)}, id="a number of no kind that a state has"),
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_wants_more_is_refused_and_does_nothing(
    attack: Callable[[Path], object], protocol: int, tmp_path: Path
) -> None:
    data = pickle.dumps(attack(tmp_path / "made"), protocol)
    with pytest.raises(TraceError, match=r"a.mjl: the state cannot be restored"):
        restore_state(data, "a.mjl")
    assert not (tmp_path / "made").exists()


def bare(module: str, name: str) -> bytes:
    """Instructions that push an object of the class, made bare."""
    pushed = b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name))
    return pushed + b"\x93)\x81"


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"N", id="no end"),
        pytest.param(b"", id="nothing"),
        pytest.param(b".", id="an empty stack"),
        pytest.param(b"NN.", id="two values"),
        pytest.param(b"N(.", id="a mark is left"),
        pytest.param(b"N\x85\x85\x86.", id="too few for a tuple"),
        pytest.param(b"l.", id="a list without a mark"),
        pytest.param(b"NNR.", id="a call of nothing"),
        pytest.param(b"h\x09.", id="a memo that is not there"),
        pytest.param(b"N)b.", id="a state for nothing"),
        pytest.param(b"cos\nsystem\n.", id="a global by text"),
        pytest.param(b"\x8c\x02os\x8c\x06system\x93.", id="a global"),
        pytest.param(b"\x82\x01.", id="an extension"),
        pytest.param(b"Pabc\n.", id="a persistent id"),
        pytest.param(b"]N\x8c\x01as.", id="an item of a list"),
        pytest.param(b"}(NNNu.", id="an odd number of items"),
        pytest.param(b"}N\x90.", id="items of a set for a dict"),
        pytest.param(bare("builtins", "list") + b".", id="a container made bare"),
        pytest.param(bare("mileage.core.request", "Request") + b".", id="a struct made bare"),
        pytest.param(
            bare("mileage.policy.breaker", "Breaker") + b"N}\x8c\x08evil_one\x8c\x01xs\x86b.",
            id="an attribute that the class does not declare",
        ),
        pytest.param(
            bare("mileage.policy.breaker", "Breaker")
            + b"N}\x8c\x05state\x8c\x01xs\x86b" * 2
            + b".",
            id="attributes set twice",
        ),
        pytest.param(
            b"\x8c\x16mileage.policy.breaker\x8c\x07Breaker\x93N}\x8c\x06failed\x8c\x01xs\x86b.",
            id="an attribute of a class itself",
        ),
    ],
)
def test_broken_and_hostile_programs_are_refused(program: bytes) -> None:
    with pytest.raises(TraceError):
        restore_state(program, "a.mjl")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_harmless(data: bytes) -> None:
    with contextlib.suppress(TraceError):
        restore_state(b"\x80\x04" + data + b".", "a.mjl")


_STATE = dump_state(busy(in_flight=20))


@given(st.data())
def test_a_damaged_state_is_refused_or_an_object(data: st.DataObject) -> None:
    damaged = bytearray(_STATE)
    for place in data.draw(st.lists(st.integers(0, len(_STATE) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TraceError):
        restore_state(bytes(damaged), "a.mjl")


def test_a_flight_of_a_version_with_fewer_fields_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not completed with fields that are nothing at all: it would go wrong later, and elsewhere."""
    names = Flight.__struct_fields__[:-1]
    with monkeypatch.context() as older:
        older.setattr(snapshot, "_flight_names", names)
        older.setattr(snapshot, "_flight_values", attrgetter(*names))
        state = dump_state(busy(in_flight=1))
    with pytest.raises(TraceError, match="a Flight has other fields"):
        restore_state(state, "older")


def test_a_request_is_stored_with_all_that_it_has() -> None:
    full = msgspec.structs.replace(
        request(1 << 60),
        output_tokens_max=5,
        prefix_key=2**64 - 1,
        priority="low",
        choices=3,
        merge_key="m",
        batch_key="b",
        batch_items=9,
    )
    assert isinstance(full, Request)
    assert restore_state(dump_state([full]), "a.mjl") == [full]
