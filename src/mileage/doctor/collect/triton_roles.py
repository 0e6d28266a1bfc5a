"""What each model of a Triton repository does: engine, tokeniser, detokeniser, frame of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

__all__ = ["Role", "triton_roles"]

Role: TypeAlias = Literal["engine", "preprocess", "postprocess", "frame"]

_ENGINE_BACKENDS: Final = frozenset({"tensorrtllm", "vllm", "tensorrt_llm", "fastertransformer"})
_WORDS: Final[tuple[tuple[tuple[str, ...], Role], ...]] = (
    (("postprocess", "detokeniz", "detokenis", "decode"), "postprocess"),
    (("preprocess", "tokeniz", "tokenis", "encode"), "preprocess"),
    (("ensemble", "bls"), "frame"),
    (("tensorrt_llm", "tensorrtllm", "trtllm", "vllm", "llm"), "engine"),
)


def triton_roles(
    models: Iterable[str],
    *,
    backends: Mapping[str, str] = {},
    steps: Sequence[str] = (),
) -> dict[str, Role]:
    """Role by model, of those that can be told.

    By the model's backend where it is known, by its place among an ensemble's `steps` (before or
    after the engine), else by the words in its name, as the templates of NVIDIA call them.
    """
    names = sorted(set(models))
    roles: dict[str, Role] = {}
    for name in names:
        role = _by_backend(backends.get(name, "")) or _by_name(name)
        if role is not None:
            roles[name] = role
    engines = [name for name in steps if roles.get(name) == "engine"]
    if len(engines) == 1:
        place = steps.index(engines[0])
        roles |= {name: "preprocess" for name in steps[:place] if name in names}
        roles |= {name: "postprocess" for name in steps[place + 1 :] if name in names}
    unknown = [name for name in names if name not in roles]
    if "engine" not in roles.values() and len(unknown) == 1:
        roles[unknown[0]] = "engine"
    return roles


def _by_backend(backend: str) -> Role | None:
    if backend == "ensemble":
        return "frame"
    return "engine" if backend in _ENGINE_BACKENDS else None


def _by_name(name: str) -> Role | None:
    """The first that fits: `postprocessing` is no engine though `tensorrt_llm` may be in its path,
    `detokenizer` no tokeniser."""
    plain = name.lower()
    found = (role for words, role in _WORDS if any(word in plain for word in words))
    return next(found, None)
