"""The model list of an engine: the answer of /v1/models, validated and bounded."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

from mileage.core.errors import EngineError
from mileage.core.replica import Adapter

__all__ = ["ModelList", "parse_models"]

MODELS_MAX = 10_000
NAME_CHARS_MAX = 512
PATH_CHARS_MAX = 4096

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class ModelList(NamedTuple):
    """What a replica serves: names as clients use them, and those of them that are adapters."""

    names: tuple[str, ...]
    adapters: tuple[Adapter, ...] = ()


class _Model(msgspec.Struct):
    id: _Name
    parent: Any = None
    """vLLM and SGLang: the model that a LoRA adapter is for; null for a model of its own."""
    root: Any = None
    """Likewise: the path of an adapter, as it was told to load it."""


_Models = Annotated[list[_Model], msgspec.Meta(max_length=MODELS_MAX)]


class _List(msgspec.Struct):
    data: _Models | None


_DECODER = msgspec.json.Decoder(_List | _Models)  # some servers answer with the bare list


def parse_models(engine: str, body: bytes) -> ModelList:
    """Model names, in the engine's order, each once; `{"data": null}` is an empty list.

    A model with a `parent` is an adapter; the parent may have a name that no client uses.

    Raises EngineError for a body that is no such list, has more than 10,000 models, or a name that
    is empty, longer than 512 characters or has a control character: one bad entry fails the list,
    because a name that is wrong here would be offered to clients.
    """
    try:
        answer = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EngineError(engine, f"no usable model list: {error}") from error
    models = answer.data if isinstance(answer, _List) else answer
    names = tuple(dict.fromkeys(model.id for model in models or ()))
    for name in names:
        if not name.isprintable():
            raise EngineError(engine, f"no usable model list: unprintable name {name[:50]!r}")
    adapters = {
        model.id: Adapter(model.id, model.id, model.parent, _path_of(model))
        for model in models or ()
        if _is_base(model)
    }
    return ModelList(names, tuple(adapters.values()))


def _path_of(model: _Model) -> str | None:
    root = model.root
    return root if isinstance(root, str) and 0 < len(root) <= PATH_CHARS_MAX else None


def _is_base(model: _Model) -> bool:
    """Its parent is one; what is no usable name says nothing, and does no harm."""
    parent = model.parent
    return (
        isinstance(parent, str)
        and parent != model.id
        and 0 < len(parent) <= NAME_CHARS_MAX
        and parent.isprintable()
    )
