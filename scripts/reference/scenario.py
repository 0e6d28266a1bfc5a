"""docs/reference/scenario.md out of the structs of `mileage simulate --scenario`."""

from __future__ import annotations

import msgspec
from scripts.reference import configuration

from mileage.cli.scenario_file import SharingConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.scaling import ScalingConfig

__all__ = ["Scenario", "render"]

_INTRO = """\
# Scenarios

<!-- Written by `make docs` from the code; change the docstrings there. -->

`mileage simulate --scenario FILE` reads a TOML file of what is simulated beside what is deployed:
how engines work (`[engine]`), when replicas come and go (`[scaling]`), and which of them share a
GPU (`[sharing]`). Every table and key may be left out; one that does not exist is an error that
names it, its line, and the nearest ones.

Each key of `[engine]` and of the tables in it is also `--engine-option KEY=VALUE`, without
`engine.` before it: `--engine-option adapters.slots=8`. A value is JSON, and text where it is none;
`KEY=null` takes a table of the file away. `--schedule`, `--cold-start`, `--share` and
`--graph-sizes` are the other ones. Options go before the file. What each feature does in a step:
[The simulated engine](../explanation/simulated-engine.md); what it is worth:
[Price an engine's feature](../how-to/price-a-feature.md).

"""
_DEFAULTS = {
    "kv_blocks": "what the memory has room for",
    "running_max": "`--engine-max-seqs`, else vLLM's on that GPU",
    "step_tokens_max": "`--engine-tokens`, else vLLM's on that GPU",
    "long_prefill_tokens_max": "`--long-prefill`",
    "noise_ratio": "`--noise`, else `0.0`",
    "dp_ranks": "`--dp`",
}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The file with its tables in place."""

    graph_sizes: tuple[int, ...] | None = None
    """Batch sizes with a captured CUDA graph. Empty: none. None: those that vLLM captures."""
    engine: EngineConfig
    scaling: ScalingConfig | None = None
    sharing: SharingConfig = SharingConfig()


def render() -> str:
    """The page."""
    parts = [_INTRO]
    for section in configuration.sections(Scenario):
        title = f"`{section.header}`" if section.header else "Top level"
        lines = [f"## {title}", ""]
        if section.meaning:
            lines += [" ".join(section.meaning.split()), ""]
        lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
        for key in section.keys:
            default = key.default
            if section.header == "[engine]":
                default = _DEFAULTS.get(key.name, default)
            lines.append(f"| `{key.name}` | {key.type} | {default} | {key.meaning} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)
