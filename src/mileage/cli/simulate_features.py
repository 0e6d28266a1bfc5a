"""Features: what simulated engines can do and how their fleet is kept, out of file and options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.scenario_file import ScenarioFile, SharingConfig, read_scenario
from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_spelling import graph_sizes_of, scaling_of, sharing_of, variant_of
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_options import merged, section_of, with_section
from mileage.sim.scaling import ScalingConfig

__all__ = ["PLAIN", "Features", "Limits", "features_of"]

PLAIN: Final = "plain"
"""The name, in tables, of the engine that variants are variants of."""
_UNKNOWN_BLOCKS: Final = 1 << 40
"""Stands for the blocks of the KV cache until they are computed from the engine's limits."""
_STEPS_MAX: Final = 4_000_000
"""Requests or tokens of a step: more would be a step table that fills the memory."""
_SIZING: Final = ("running_max", "step_tokens_max", "block_tokens", "speculation", "dp_ranks")
"""Keys that the memory of the KV cache depends on."""
_OPTIONS: Final = {
    "engine.running_max": "--engine-max-seqs",
    "engine.step_tokens_max": "--engine-tokens",
    "engine.long_prefill_tokens_max": "--long-prefill",
    "engine.noise_ratio": "--noise",
    "engine.dp_ranks": "--dp",
    "engine.prefix_cache": "--prefix-cache",
    "engine option": "--engine-option",
}
"""The option that sets a key, where it is set by none of --engine-option and by no file."""


class Limits(NamedTuple):
    """What an engine has where nothing else is said: of each of its data-parallel ranks, and the
    tokens of each batch that is in its pipeline."""

    running_max: int
    step_tokens_max: int
    ranks: int = 1
    stages: int = 1

    def whole(self, key: str, value: int) -> int:
        """A limit of all ranks and batches, from that of one."""
        if key == "running_max":
            return value * self.ranks
        return value * self.ranks * self.stages if key == "step_tokens_max" else value


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, put together."""

    variant: str | None
    """The name of the variant that this is; None: there are no variants, or it is the plain one."""
    written: dict[str, Any]
    """Of the file's section `[engine]`."""
    named: dict[str, Any]
    """Keys of an engine that have options of their own, as far as these are given."""
    spelled: dict[str, Any]
    """Of --engine-option, and of the variant."""
    graph_sizes: tuple[int, ...] | None
    scaling: ScalingConfig | None
    schedule_is_spelled: bool
    """Whether its schedule is that of --schedule, and not the file's."""
    sharing: SharingConfig
    document: Document | None
    """The file, which knows on which lines it says what; None: there is none."""

    def engine(
        self, limits: Limits, slo: Slo, kv_blocks: Callable[[EngineConfig], int]
    ) -> EngineConfig:
        """An engine with those limits, but for what is asked for.

        Where its blocks are not, `kv_blocks` is asked how many an engine of such a size has. `slo`
        are the targets that its own policies go by. Raises ConfigError by option, or by the file's
        key with its line.
        """
        with self.told():
            section = merged(
                merged(self.written, {k: limits.whole(k, v) for k, v in self.named.items()}),
                self.spelled,
            )
            policies = section.get("prefill")
            if isinstance(policies, Mapping):
                targets = {"ttft_s": slo.ttft_s, "itl_s": slo.itl_s}
                section["prefill"] = merged({"slo": targets}, policies)
            base = _sized(limits, section)
            sizing: dict[str, Any] = {key: section[key] for key in _SIZING if key in section}
            sized = with_section(base, sizing)
            if sized.dp_ranks != limits.ranks:
                raise ConfigError("engine.dp_ranks", sized.dp_ranks, f"--dp {sized.dp_ranks}")
            _check_size(sized)
            if "kv_blocks" not in section:
                section = {**section, "kv_blocks": kv_blocks(sized)}
            return with_section(base, section)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Errors name the option, or the key of the file, that set what is wrong."""
        try:
            yield
        except ConfigError as error:
            raise self._told(error) from None

    def _told(self, error: ConfigError) -> ConfigError:
        place, _, rest = error.key.partition(".")
        name = rest.partition(".")[0].partition("[")[0]
        if place == "engine" and name in self.spelled:
            return error.named(f"--engine-option {rest}")
        if place == "engine" and name in self.written and name not in self.named:
            assert self.document is not None
            return self.document.placed(error)
        key = _OPTIONS.get(error.key)
        if key is None:
            key = f"--engine-option {rest}" if place == "engine" else error.key
        return error.named(key)


def features_of(arguments: RunArguments, *, variants: bool = False) -> list[Features]:
    """What the options ask for; with `variants` also each --variant, behind the plain one.

    Raises ConfigError by option, or by the file's key with its line.
    """
    document, file = None, ScenarioFile()
    if arguments.scenario is not None:
        document, file = read_scenario(arguments.scenario)
    spelled: dict[str | None, dict[str, Any]] = {None: _section(arguments.engine_option or ())}
    for text in getattr(arguments, "variant", None) or () if variants else ():
        name, options = variant_of(text)
        if name in spelled or name == PLAIN:
            raise ConfigError("--variant", name, f"names that differ, and not {PLAIN}")
        spelled[name] = merged(spelled[None], _section(options))
    named = {
        "running_max": arguments.engine_max_seqs,
        "step_tokens_max": arguments.engine_tokens,
        "long_prefill_tokens_max": arguments.long_prefill,
        "prefix_cache": arguments.prefix_cache,
        "noise_ratio": arguments.noise,
    }
    sizes = file.graph_sizes
    if arguments.graph_sizes is not None:
        sizes = graph_sizes_of(arguments.graph_sizes)
    sharing = file.sharing if arguments.share is None else sharing_of(arguments.share)
    scaling = scaling_of(arguments.schedule, arguments.cold_start, file.scaling)
    return [
        Features(
            variant=name,
            written=file.engine,
            named={key: value for key, value in named.items() if value is not None},
            spelled=section,
            graph_sizes=sizes,
            scaling=scaling,
            schedule_is_spelled=arguments.schedule is not None,
            sharing=sharing,
            document=document,
        )
        for name, section in spelled.items()
    ]


def _check_size(engine: EngineConfig) -> None:
    """A step table has a time for each number of requests and of tokens."""
    require_range("engine.running_max", engine.rows_max, 1, _STEPS_MAX)
    require_range("engine.step_tokens_max", engine.step_tokens_max, 1, _STEPS_MAX)


def _sized(limits: Limits, section: Mapping[str, Any]) -> EngineConfig:
    """The limits of all ranks; each gives way where only the other one is asked for."""
    drafts = section.get("speculation")
    each = 1
    if isinstance(drafts, Mapping):
        count = drafts.get("draft_tokens", 1)
        each += count if isinstance(count, int) and 0 < count < 1000 else 1
    seqs = limits.whole("running_max", limits.running_max)
    tokens = limits.whole("step_tokens_max", limits.step_tokens_max)
    asked = section.get("step_tokens_max")
    if isinstance(asked, int):
        seqs = min(seqs, max(asked // each, 1))
    asked = section.get("running_max")
    if isinstance(asked, int):
        tokens = max(tokens, asked * each)
    elif seqs * each > tokens:
        seqs = tokens // each
    return EngineConfig(
        kv_blocks=_UNKNOWN_BLOCKS, running_max=seqs, step_tokens_max=tokens, dp_ranks=limits.ranks
    )


def _section(options: Iterable[str]) -> dict[str, Any]:
    try:
        return section_of(options)
    except ConfigError as error:
        raise error.named("--engine-option") from None
