"""What a Prometheus has recorded of an engine, its GPUs and its pods: bounded range queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.prometheus_answers import PromSeries, matrix_of, target_of
from mileage.doctor.collect.prometheus_cluster import CLUSTER_NAMES
from mileage.wire.fetch import Fetch
from mileage.wire.url import display_url

__all__ = ["Recorded", "ask_prometheus", "selector_of"]

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
TIMEOUT_S: Final = 30.0
POINTS_MAX: Final = 30
"""Of each series: a histogram has hundreds of them, and each target many."""
STEP_MIN_S: Final = 1.0
_ENGINES: Final = r"(vllm:|sglang:|trtllm_|pytrtllm:|nv_trt_llm|nv_inference|llamacpp:|tgi_).+"
_PROCESS: Final = "process_(start_time_seconds|cpu_seconds_total|resident_memory_bytes)"
_GPUS: Final = "DCGM_FI_.+"
_MATCHER: Final = re.compile(r'\s*([a-zA-Z_]\w{0,199})\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*')
_MOVED: Final = frozenset({"namespace", "pod", "container"})
"""Labels that say where an exporter runs, and with `exported_` before them what it tells of."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Series by what they are of, and for what could not be asked why."""

    engines: list[PromSeries]
    gpus: list[PromSeries]
    cluster: list[PromSeries]
    notes: dict[str, str]


def selector_of(text: str) -> tuple[tuple[str, str, str], ...]:
    """Label, operator and quoted value of each matcher of `namespace="x",pod=~"chat.*"`, with or
    without braces around them. Raises ConfigError."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    found: list[tuple[str, str, str]] = []
    place = 0
    while place < len(inner):
        match = _MATCHER.match(inner, place)
        if match is None or len(inner) > 10_000:
            raise ConfigError("--selector", text[:200], 'matchers such as namespace="prod"')
        found.append((match[1], match[2], match[3]))
        place = match.end()
        if place < len(inner) and inner[place] != ",":
            raise ConfigError("--selector", text[:200], "matchers with a comma between them")
        place += 1
    return tuple(found)


async def ask_prometheus(
    url: str,
    *,
    matchers: Sequence[tuple[str, str, str]],
    window_s: float,
    now_utc_s: float,
    fetch: Fetch,
) -> Recorded:
    """Ask for the last `window_s` seconds, at most 30 values of each series.

    GPUs and pods are asked for once more with `exported_namespace` for `namespace` where there are
    none: that is what Prometheus calls it when an exporter runs in a namespace of its own.

    Raises:
        EngineError: it does not answer, or refuses the question about engines.
    """
    step_s = max(STEP_MIN_S, window_s / (POINTS_MAX - 1))
    notes: dict[str, str] = {}

    async def ask(names: str, own: Sequence[tuple[str, str, str]]) -> list[PromSeries]:
        selector = ",".join([f'__name__=~"{names}"', *("".join(m) for m in own)])
        values = {
            "query": f"{{{selector}}}",
            "start": f"{now_utc_s - window_s:.3f}",
            "end": f"{now_utc_s:.3f}",
            "step": f"{step_s:.3f}",
            "timeout": f"{TIMEOUT_S - 5:g}s",
        }
        return await _asked(url, values, fetch)

    async def ask_anywhere(names: str) -> list[PromSeries]:
        try:
            found = await ask(names, matchers)
            if not found and any(label in _MOVED for label, _, _ in matchers):
                moved = [(_exported(label), how, value) for label, how, value in matchers]
                found = await ask(names, moved)
        except EngineError as error:
            notes[f"{names.partition('|')[0]} in Prometheus"] = error.message
            return []
        return found

    engines = await ask(_ENGINES, matchers)
    if engines:
        targets = {target_of(each.labels) for each in engines}
        more = await ask_anywhere(_PROCESS)
        engines += [each for each in more if target_of(each.labels) in targets]
    else:
        notes["engines in Prometheus"] = "no series of an engine that we know"
    return Recorded(
        engines=engines,
        gpus=await ask_anywhere(_GPUS),
        cluster=await ask_anywhere("|".join(CLUSTER_NAMES)) if matchers else [],
        notes=notes,
    )


async def _asked(url: str, values: dict[str, str], fetch: Fetch) -> list[PromSeries]:
    name = display_url(url)
    response = await fetch(
        f"{url}/api/v1/query_range?{urlencode(values)}",
        timeout_s=TIMEOUT_S,
        body_bytes_max=BODY_BYTES_MAX,
    )
    try:
        return matrix_of(response.body)
    except ValueError as error:
        said = str(error) if response.status in (200, 400, 422, 503) else "refused"
        raise EngineError(name, f"answered {response.status}: {said}") from None


def _exported(label: str) -> str:
    return f"exported_{label}" if label in _MOVED else label
