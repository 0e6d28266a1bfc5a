"""The command line and environment that an engine was started with, as settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.doctor.collect.engine_arguments import argument_facts, is_flag
from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.launch_defaults import launch_defaults
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.setting_values import as_count, as_flag

__all__ = ["LaunchFacts", "engine_of_command", "launch_facts"]

ARGUMENTS_MAX: Final = 10_000
WORD_MAX: Final = 100_000
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_ENGINES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("sglang", re.compile(r"(^|/)sglang$|^sglang\.(launch_server|srt\.)|sglang/launch_server")),
    ("tensorrt-llm", re.compile(r"(^|/)trtllm-serve$|^tensorrt_llm\.")),
    ("vllm", re.compile(r"(^|/)vllm$|^vllm\.entrypoints\.|vllm/entrypoints/")),
    ("llama.cpp", re.compile(r"(^|/)llama-server(\.exe)?$|^llama_cpp\.server$")),
    ("triton", re.compile(r"(^|/)tritonserver$")),
    ("tgi", re.compile(r"(^|/)text-generation-launcher$")),
)
"""A word of the command line that tells the engine."""
_SHORT: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "ep": "enable_expert_parallel",
        "q": "quantization",
        "asc": "api_server_count",
    },
    "sglang": {
        "tp": "tp_size",
        "pp": "pp_size",
        "dp": "dp_size",
        "ep": "ep_size",
        "model": "model_path",
    },
    "tensorrt-llm": {"tp": "tp_size", "pp": "pp_size", "ep": "ep_size"},
    "llama.cpp": {
        "m": "model",
        "np": "parallel",
        "c": "ctx_size",
        "b": "batch_size",
        "ctk": "cache_type_k",
        "md": "model_draft",
        "draft": "draft_max",
        "draft_n": "draft_max",
        "kvu": "kv_unified",
        "a": "alias",
    },
}
_CONFIG_FILES: Final = frozenset(
    {"config", "extra_llm_api_options", "models_preset", "config_file"}
)
"""Arguments that name a file with more arguments: what is not on the line may be there."""
_ENVIRONMENT: Final = ("OMP_NUM_THREADS", "NCCL_P2P_DISABLE", "VLLM_SKIP_P2P_CHECK")
_JSON_ENDS: Final = {"{": "}", "[": "]"}


class LaunchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says, and what follows where it says nothing."""

    engine: str | None
    configured: FactsDocument
    defaults: FactsDocument


def engine_of_command(words: Sequence[str]) -> str | None:
    """The doctor's name of the engine that a command line starts; None for any other command."""
    for word in words[:ARGUMENTS_MAX]:
        for engine, pattern in _ENGINES:
            if pattern.search(word):
                return engine
    return None


def launch_facts(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    version: str | None = None,
    environment_is_whole: bool = False,
) -> LaunchFacts:
    """Facts of a command line: of a process, of a container's `command` and `args`, of a script.

    A shell (`sh -c "vllm serve ..."`) is looked through. `environment_is_whole`: what is not in it
    is known to be not set. Defaults are empty where an argument names a file with more of them.
    """
    plain = _through_shell([word[:WORD_MAX] for word in words[:ARGUMENTS_MAX]])
    engine = engine_of_command(plain)
    variables = environment_facts(environment or {}, is_whole=environment_is_whole)
    if engine is None:
        return LaunchFacts(engine=None, configured=variables, defaults={})
    arguments = _arguments(engine, plain)
    variant = _variant(engine, version, environment or {})
    configured = overlay(
        argument_facts(engine, arguments),
        variables,
        facts_document(engine={"name": engine, "version": version, "variant": variant}),
    )
    settings = configured.get("settings", {})
    is_whole = not _CONFIG_FILES & arguments.keys()
    return LaunchFacts(
        engine=engine,
        configured=configured,
        defaults=launch_defaults(engine, settings, variant=variant) if is_whole else {},
    )


def environment_facts(environment: Mapping[str, str], *, is_whole: bool = False) -> FactsDocument:
    """Settings that stand in variables; None for one that is known to be not set."""
    settings: dict[str, Any] = {}
    for name in _ENVIRONMENT:
        value = as_count(environment.get(name))
        if value is not None:
            settings[f"env.{name}"] = value
        elif is_whole and name not in environment:
            settings[f"env.{name}"] = None
    return facts_document(settings=settings)


def _variant(engine: str, version: str | None, environment: Mapping[str, str]) -> str | None:
    """vLLM's generation: V0 by itself up to 0.7, V1 alone from 0.11, either by VLLM_USE_V1."""
    if engine != "vllm":
        return None
    minor = re.match(r"v?0\.(\d+)(\.|$)", version or "")
    number = int(minor[1]) if minor is not None else None
    if number is not None and number >= 11:
        return "v1"
    asked = as_flag(environment.get("VLLM_USE_V1"))
    if asked is not None:
        return "v1" if asked else "v0"
    return "v0" if number is not None and number <= 7 else None


def _through_shell(words: Sequence[str]) -> list[str]:
    """The words of the command that a shell runs, where the command is a shell."""
    found = list(words)
    for _ in range(3):
        name = found[0].rpartition("/")[2] if found else ""
        script = next((found[i + 1] for i, word in enumerate(found[:-1]) if word == "-c"), None)
        if name in _SHELLS and script is not None:
            found = _split(script)
        elif len(found) == 1 and " " in found[0].strip():
            found = _split(found[0])
        else:
            break
    return found


def _split(text: str) -> list[str]:
    """Words as a shell splits them; by spaces where its quotes do not match."""
    plain = text.replace("\\\r\n", " ").replace("\\\n", " ")
    try:
        return shlex.split(plain, comments=True)
    except ValueError:
        return plain.split()


def _arguments(engine: str, words: Sequence[str]) -> dict[str, Any]:
    """Arguments by their long names, with `_` for `-`; the model where it stands by itself."""
    found: dict[str, Any] = {}
    start = next((i + 1 for i, word in enumerate(words) if engine_of_command([word]) == engine), 0)
    index = start
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or word in ("-", "--") or _is_number(word):
            if word not in ("serve", "&&", ";") and "model" not in found and engine != "triton":
                found.setdefault("model_tag", word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = _long_name(engine, name, is_short=not word.startswith("--"))
        if equals:
            _put(found, name, value)
        elif index < len(words) and _is_value(engine, name, words[index]):
            _put(found, name, words[index])
            index += 1
        elif name.startswith("no_"):
            found[name.removeprefix("no_")] = False
        else:
            found[name] = True
    return found


def _put(found: dict[str, Any], name: str, value: str) -> None:
    """A value by its name or path (`speculative_config.method`), JSON as what it is."""
    outer, dot, inner = name.partition(".")
    if dot:
        table = found.setdefault(outer, {})
        if isinstance(table, dict):
            table[inner] = value
        return
    found[name] = _decoded(value)


def _decoded(value: str) -> Any:
    text = value.strip()
    if not text or _JSON_ENDS.get(text[0]) != text[-1]:
        return value
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return value


def _long_name(engine: str, name: str, *, is_short: bool) -> str:
    plain = name.replace("-", "_")
    short = _SHORT.get(engine, {})
    return short.get(plain, plain) if is_short or plain in ("tp", "pp", "dp", "ep") else plain


def _is_value(engine: str, name: str, word: str) -> bool:
    """Does the word belong to the argument before it?"""
    if is_flag(engine, name) or is_flag(engine, name.removeprefix("no_")):
        return as_flag(word) is not None
    return not word.startswith("-") or _is_number(word)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?", word) is not None
