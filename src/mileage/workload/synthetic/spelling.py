"""parse_synthetic(): a synthetic workload spelled in one line, for a command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

import msgspec

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.config import SyntheticConfig

__all__ = ["KEYS", "parse_synthetic", "seconds_of", "synthetic_config"]

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)?")
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,3})?")
_LENGTH: Final = (
    "TOKENS, fixed:TOKENS, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA[:LOW:HIGH] or"
    " zipf:ALPHA:LOW:HIGH"
)
_LENGTH_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "fixed": (("tokens",), 1),
    "uniform": (("low", "high"), 2),
    "lognormal": (("median", "sigma", "low", "high"), 2),
    "zipf": (("alpha", "low", "high"), 1),
}
_ARRIVALS: Final[Mapping[str, tuple[str, ...]]] = {
    "poisson": (),
    "even": (),
    "gamma": ("cv",),
    "weibull": ("cv",),
    "onoff": ("on_s", "off_s", "off_ratio"),
    "diurnal": ("period_s", "peak_ratio"),
}
_ARRIVAL_KEYS: Final = {
    "cv": "cv",
    "on": "on_s",
    "off": "off_s",
    "off-ratio": "off_ratio",
    "period": "period_s",
    "peak-ratio": "peak_ratio",
}
_SPELLED: Final = {
    "rate_rps": "rate",
    "duration_s": "duration",
    "output_tokens_max": "max-tokens",
    "stream_ratio": "stream",
    "block_tokens": "block-tokens",
    "conversations": "turns",
}


def parse_synthetic(text: str, *, seed: int = 0) -> SyntheticConfig:
    """`rate=5,duration=10m,arrivals=gamma,cv=3,prompt=lognormal:600:1,seed=1` as a configuration.

    Keys are those of KEYS; `seed` holds where the text has none. Raises ConfigError that names the
    key as it is spelled, and the nearest one for a key that is not there.
    """
    tree: dict[str, Any] = {}
    arrivals: dict[str, Any] = {}
    seen = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        key = key.strip().replace("_", "-")
        if key not in KEYS and key not in _ARRIVAL_KEYS and key != "arrivals":
            raise _unknown(key)
        if not equals or not value.strip():
            raise ConfigError(key, item, f"{key}=VALUE")
        if key in seen:
            raise ConfigError(key, item, "it once")
        seen.add(key)
        value = value.strip()
        if key == "arrivals":
            arrivals["kind"] = _word(key, value, _ARRIVALS)
        elif key in _ARRIVAL_KEYS:
            number = seconds_of if key in ("on", "off", "period") else _number
            arrivals[_ARRIVAL_KEYS[key]] = number(key, value)
        else:
            KEYS[key](tree, key, value)
    kind = arrivals.get("kind", "poisson")
    for name in arrivals:
        if name != "kind" and name not in _ARRIVALS[kind]:
            spelled = next(k for k, field in _ARRIVAL_KEYS.items() if field == name)
            raise ConfigError(spelled, arrivals[name], f"nothing with arrivals={kind}")
    if arrivals:
        tree["arrivals"] = {"kind": kind, **arrivals}
    tree.setdefault("seed", seed)
    try:
        return synthetic_config(tree)
    except ConfigError as error:
        raise error.named(_spelled(error.key)) from None


def _spelled(key: str) -> str:
    """The key of a line for that of a tree."""
    part, _, field = key.partition(".")
    if part == "arrivals":
        return next((k for k, name in _ARRIVAL_KEYS.items() if name == field), part)
    if part == "media":
        return "images" if field.startswith("image") else "audio"
    return _SPELLED.get(part, key)


def synthetic_config(tree: object) -> SyntheticConfig:
    """The configuration out of a tree of tables, as TOML has them. Raises ConfigError."""
    if isinstance(tree, dict):
        # Part by part, so that a fault is told with the name of its part.
        tree = {key: _part(str(key), value) for key, value in tree.items()}
    return _converted(tree, SyntheticConfig, "")  # type: ignore[no-any-return]


def _part(key: str, value: object) -> object:
    kind = _TYPES.get(key)
    return _converted(value, kind, f"{key}.") if kind and isinstance(value, dict) else value


def _converted(value: object, kind: Any, prefix: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except ConfigError as error:
        raise error.named(f"{prefix}{error.key}") from None
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        place = f"{prefix}{place.rstrip('`').lstrip('.')}".rstrip(".")
        missing = re.fullmatch(r"Object missing required field `(\w+)`", message)
        if missing:
            raise ConfigError(f"{prefix}{missing[1]}", None, "a value") from None
        unknown = re.fullmatch(r"Object contains unknown field `(.+)`", message)
        if unknown:
            near = get_close_matches(unknown[1], SyntheticConfig.__struct_fields__, n=2)
            hint = f"; near: {', '.join(near)}" if near and not prefix else ""
            raise ConfigError(f"{prefix}{unknown[1]}", "it", f"a known key{hint}") from None
        raise ConfigError(place or "synthetic", "it", message) from None


def seconds_of(key: str, text: str) -> float:
    """A time: 90, 90s, 15m, 2h, 1d or 250ms. Raises ConfigError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(key, text, "a time such as 90s, 15m, 2h or 1d")
    return float(match[1]) * _UNITS_S[match[2] or "s"]


def _number(key: str, text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ConfigError(key, text, "a number")
    return float(text)


def _whole(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ConfigError(key, text, "a whole number")
    return int(text)


def _word(key: str, text: str, words: Mapping[str, object]) -> str:
    if text not in words:
        raise ConfigError(key, text, f"one of {', '.join(words)}")
    return text


def _unknown(key: str) -> ConfigError:
    known = sorted({*KEYS, *_ARRIVAL_KEYS, "arrivals"})
    near = get_close_matches(key, known, n=2)
    hint = f"; near: {', '.join(near)}" if near else ""
    return ConfigError(key or "synthetic", key, f"one of {', '.join(known)}{hint}")


def _length(key: str, text: str) -> dict[str, Any]:
    kind, *values = text.split(":")
    if not values and kind.isdigit():
        kind, values = "fixed", [kind]
    fields, least = _LENGTH_FIELDS.get(kind, ((), 1))
    if not least <= len(values) <= len(fields):
        raise ConfigError(key, text, _LENGTH)
    found: dict[str, Any] = {"kind": kind}
    for field, value in zip(fields, values, strict=False):
        whole = field in ("tokens", "low", "high")
        found[field] = _whole(key, value) if whole else _number(key, value)
    return found


_TYPES: Final[Mapping[str, Any]] = {
    name: hint
    for name, hint in get_type_hints(SyntheticConfig).items()
    if name not in ("endpoints", "priorities")
}
"""The type of each part."""
_Put = Callable[[dict[str, Any], str, str], None]


def _plain(field: str, value: Callable[[str, str], Any]) -> _Put:
    return lambda tree, key, text: tree.__setitem__(field, value(key, text))


def _group(field: str, names: tuple[str, ...], least: int, form: str) -> _Put:
    """COUNT[:ALPHA...]: numbers apart from a length, which takes the rest of its colons."""

    def put(tree: dict[str, Any], key: str, text: str) -> None:
        values = text.split(":")
        if not least <= len(values) <= len(names):
            raise ConfigError(key, text, form)
        found: dict[str, Any] = {}
        for name, value in zip(names, values, strict=False):
            if name in ("count", "fixed"):
                number: Any = _whole(key, value)
            else:
                number = seconds_of(key, value) if name == "think_s" else _number(key, value)
            found["tokens" if name == "fixed" else name] = (
                {"kind": "fixed", "tokens": number} if name == "fixed" else number
            )
        tree[field] = found

    return put


def _media(prefix: str, field: str) -> _Put:
    def put(tree: dict[str, Any], key: str, text: str) -> None:
        ratio, colon, length = text.partition(":")
        media = tree.setdefault("media", {})
        media[f"{prefix}_ratio"] = _number(key, ratio)
        if colon:
            media[field] = _length(key, length)

    return put


KEYS: Final[Mapping[str, _Put]] = {
    "rate": _plain("rate_rps", _number),
    "duration": _plain("duration_s", seconds_of),
    "requests": _plain("requests", _whole),
    "seed": _plain("seed", _whole),
    "prompt": _plain("prompt", _length),
    "output": _plain("output", _length),
    "max-tokens": _plain("output_tokens_max", _whole),
    "stream": _plain("stream_ratio", _number),
    "block-tokens": _plain("block_tokens", _whole),
    "tenants": _group("tenants", ("count", "alpha"), 1, "COUNT[:ALPHA]"),
    "models": _group("models", ("count", "alpha"), 1, "COUNT[:ALPHA]"),
    "adapters": _group("adapters", ("count", "alpha"), 1, "COUNT[:ALPHA]"),
    "contents": _group("contents", ("count", "alpha", "ratio"), 1, "COUNT[:ALPHA[:RATIO]]"),
    "prefixes": _group(
        "prefixes", ("count", "fixed", "alpha", "ratio"), 2, "COUNT:TOKENS[:ALPHA[:RATIO]]"
    ),
    "turns": _group("conversations", ("turns", "think_s", "ratio"), 1, "MEAN[:THINK[:RATIO]]"),
    "images": _media("image", "image_patches"),
    "audio": _media("audio", "audio_frames"),
}
"""What puts the value of each key into the tree, but for the keys of arrivals."""
