"""Snapshots: the controller's whole state as bytes, restored without running what the bytes say."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from io import BytesIO
from operator import attrgetter
from pickle import Pickler
from pickletools import genops
from random import Random
from typing import Any, Final

import msgspec

from mileage.control.flight import Flight
from mileage.core.errors import TraceError
from mileage.core.request import Request

__all__ = ["dump_state", "restore_state"]

_PROTOCOL: Final = 4
_OUR_PACKAGES: Final = ("core", "policy", "control", "costmodel", "measure", "workload")
_CONTAINERS: Final = {("collections", c.__name__): c for c in (OrderedDict, defaultdict, deque)}
_FACTORIES: Final = {("builtins", c.__name__): c for c in (dict, float, int, list, set)}
_BY_KEY: Final = (dict, OrderedDict, defaultdict)
_BY_PLACE: Final = (list, deque)


class _Bare:
    """Names in a pickle that an object is made without its constructor."""


class _Packed:
    """Names in a pickle that a request is made out of msgpack."""


class _Mark:
    """Where the items of a container begin on the stack."""


class _Bound:
    """Stands for `getattr`, which pickle needs for a bound method."""


class _Rebuild:
    """Stands for what msgspec names to make a struct out of keyword arguments."""


_MARK: Final = _Mark()
_STAND_INS: Final[dict[tuple[str, str], type]] = {
    ("builtins", "getattr"): _Bound,
    ("msgspec._utils", "rebuild"): _Rebuild,
    ("msgspec._core", "rebuild"): _Rebuild,
    ("random", "Random"): Random,
    **_CONTAINERS,
    **_FACTORIES,
}

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_request: Final = msgspec.msgpack.Decoder(Request).decode
_flight_names: Final = Flight.__struct_fields__
_flight_values: Final = attrgetter(*_flight_names)


def _reduce_request(request: Request) -> tuple[Any, ...]:
    return _Packed, (_encode(request),)


def _reduce_flight(flight: Flight) -> tuple[Any, ...]:
    return _Bare, (Flight,), (_flight_names, _flight_values(flight))


_QUICK: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    Flight: _reduce_flight,
    Request: _reduce_request,
}
"""There may be thousands of these: they are stored in half the time that pickle takes for them."""


def dump_state(state: object) -> bytes:
    """The object and all that it refers to, as one pickle.

    Raises an exception of pickle's for what cannot be stored: an open file, a lambda.
    """
    file = BytesIO()
    pickler = Pickler(file, _PROTOCOL)
    pickler.dispatch_table = _QUICK
    pickler.dump(state)
    return file.getvalue()


def restore_state(data: bytes, source: str) -> object:
    """The object that `dump_state` was given. `source` names the file, for errors.

    A pickle is a program. This runs none: it knows the few instructions that a state needs, makes
    structs, and objects of classes of ours without calling their constructors, and sets only
    attributes that their classes declare. Whatever else the bytes ask for raises TraceError, and so
    does every error on the way.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in genops(data):
            step = _STEPS.get(opcode.name)
            if step is None:
                raise ValueError(f"the instruction {opcode.name} is not allowed")
            step(machine, argument)
        (result,) = machine.stack
    except Exception as error:  # hostile bytes may fail anywhere: one kind of error comes out
        raise TraceError(source, 0, f"the state cannot be restored: {error}") from error
    return result


class _Machine:
    """The stack and the memo of one pickle, and the classes that it may name."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: list[Any] = []
        self.made: set[int] = set()
        """Ids of objects that were made bare and wait for their attributes; the memo of the pickle
        keeps them alive."""
        self.kept: list[Any] = []
        self.classes = _classes()

    def pop_marked(self) -> list[Any]:
        """The items after the last mark, which goes too."""
        stack = self.stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("a mark is missing")
        items = stack[place + 1 :]
        del stack[place:]
        return items


def _classes() -> dict[tuple[str, str], type]:
    """Classes by module and name that a state may name: those of ours that are loaded, and a few.

    Nothing is imported: what this program has not loaded, its controller cannot need.
    """
    found = dict(_STAND_INS)
    modules = tuple(f"mileage.{package}." for package in _OUR_PACKAGES)
    waiting, seen = [object], {object}
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                module = cls.__module__
                if isinstance(module, str) and module.startswith(modules):
                    found[module, cls.__qualname__] = cls
    return found


def _stack_global(machine: _Machine, _: object) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    cls = machine.classes.get((module, name))
    if cls is None:
        raise ValueError(f"{module}.{name} is not allowed, or not of this version")
    machine.stack.append(cls)


def _reduce(machine: _Machine, _: object) -> None:
    """Make a struct, a container or a Random; nothing else is ever called."""
    arguments, cls = machine.stack.pop(), machine.stack.pop()
    if type(arguments) is not tuple:
        raise TypeError("arguments are no tuple")
    made: object
    if cls is _Bound:
        made = _draw(*arguments)
    elif cls is _Rebuild:
        struct, fields = arguments
        made = _struct(struct)(**fields)
    elif cls is _Packed:
        made = _decode_request(*arguments)
    elif cls is _Bare:
        (wanted,) = arguments
        made = _made_bare(machine, wanted)
    elif cls is Random:
        if arguments:
            raise ValueError("a Random takes no argument here")
        made = Random(0)  # noqa: S311 -- its state follows
        machine.made.add(id(made))
        machine.kept.append(made)
    elif cls in _CONTAINERS.values():
        made = cls(*arguments)
    else:
        made = _struct(cls)(*arguments)
    machine.stack.append(made)


def _draw(owner: object, name: object) -> Callable[[], float]:
    """The bound method `random` of a Random: the only one that a state may hold."""
    if type(owner) is not Random or name != "random":
        raise ValueError(f"the attribute {name} of a {type(owner).__name__} is not allowed")
    return owner.random


def _struct(cls: Any) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
        raise TypeError(f"{cls} may not be called")
    return cls


def _new_object(machine: _Machine, _: object) -> None:
    arguments, cls = machine.stack.pop(), machine.stack.pop()
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        if type(arguments) is not tuple or len(arguments) != len(cls._fields):
            raise ValueError(f"a {cls.__name__} has other fields")
        machine.stack.append(tuple.__new__(cls, arguments))
    elif arguments == ():
        machine.stack.append(_made_bare(machine, cls))
    else:
        raise ValueError("an object is made without arguments")


def _made_bare(machine: _Machine, cls: Any) -> object:
    if not isinstance(cls, type) or cls in _STAND_INS.values():
        raise TypeError(f"{cls} may not be made so")
    # A struct cannot be made empty; its fields are set all the same, later.
    blank: tuple[Any, ...] = (None,) * len(_flight_names)
    made: object = Flight(*blank) if cls is Flight else object.__new__(cls)
    machine.made.add(id(made))
    machine.kept.append(made)
    return made


def _build(machine: _Machine, _: object) -> None:
    state = machine.stack.pop()
    made = machine.stack[-1]
    if id(made) not in machine.made:
        raise ValueError(f"the attributes of a {type(made).__name__} may not be set")
    machine.made.remove(id(made))
    if type(made) is Random:
        made.setstate(state)
        return
    if type(made) is Flight:
        names, values = state
        if names != _flight_names:
            raise ValueError("a Flight has other fields")
        for name, value in zip(names, values, strict=True):
            setattr(made, name, value)
        return
    in_dict, in_slots = state if type(state) is tuple else (state, None)
    if in_dict:
        vars(made).update(in_dict)
    if in_slots:
        declared = {name for cls in type(made).__mro__ for name in vars(cls).get("__slots__", ())}
        for name, value in in_slots.items():
            if name not in declared:
                raise ValueError(f"a {type(made).__name__} has no {name}")
            object.__setattr__(made, name, value)


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) not in _BY_PLACE:
        raise TypeError(f"nothing may be appended to a {type(target).__name__}")
    target.extend(items)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) not in _BY_KEY or len(items) % 2:
        raise TypeError(f"no items may be set in a {type(target).__name__}")
    target.update(zip(items[::2], items[1::2], strict=True))


def _add_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not set:
        raise TypeError(f"nothing may be added to a {type(target).__name__}")
    target.update(items)


def _take(machine: _Machine, count: int) -> list[Any]:
    if len(machine.stack) < count:
        raise ValueError("the stack is empty")
    items = machine.stack[-count:]
    del machine.stack[-count:]
    return items


_Step = Callable[[_Machine, Any], None]


def _push(machine: _Machine, value: Any) -> None:
    machine.stack.append(value)


def _pushing(value: Any) -> _Step:
    return lambda machine, _: machine.stack.append(value)


def _tuple_of(count: int) -> _Step:
    return lambda machine, _: machine.stack.append(tuple(_take(machine, count)))


def _recall(machine: _Machine, place: int) -> None:
    machine.stack.append(machine.memo[place])


def _ignore(machine: _Machine, _: object) -> None: ...


_LITERALS: Final = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
)

_STEPS: Final[dict[str, _Step]] = {
    **dict.fromkeys(_LITERALS, _push),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _ignore),
    "NONE": _pushing(None),
    "NEWTRUE": _pushing(True),
    "NEWFALSE": _pushing(False),
    "EMPTY_TUPLE": _pushing(()),
    "MARK": _pushing(_MARK),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_SET": lambda machine, _: machine.stack.append(set()),
    "FROZENSET": lambda machine, _: machine.stack.append(frozenset(machine.pop_marked())),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_marked())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "APPEND": lambda machine, _: _append(machine, _take(machine, 1)),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_marked()),
    "SETITEM": lambda machine, _: _set_items(machine, _take(machine, 2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_marked()),
    "ADDITEMS": lambda machine, _: _add_items(machine, machine.pop_marked()),
    "MEMOIZE": lambda machine, _: machine.memo.append(machine.stack[-1]),
    "BINGET": _recall,
    "LONG_BINGET": _recall,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _new_object,
    "BUILD": _build,
    "POP": lambda machine, _: _take(machine, 1).clear(),
    "POP_MARK": lambda machine, _: machine.pop_marked().clear(),
}
