"""`mileage quant kv`: the search on a real model, and what it found on held-out text."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import typer

from mileage.cli.quant_arguments import KvArguments
from mileage.cli.quant_document import KvResult
from mileage.cli.quant_text import Texts, texts
from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError
from mileage.engines.reference_model.measured_model import ReferenceModel
from mileage.quant.allocate import Choice
from mileage.quant.effects import Formats
from mileage.quant.expressible import ENGINE_FORMATS, Expressed, expressed
from mileage.quant.fitted_mix import fit_kl, layers_alone
from mileage.quant.formats import format_named
from mileage.quant.judged import judge
from mileage.quant.offered import ANCHORS, IDEAL, fitting
from mileage.quant.search import Search, SearchData, look
from mileage.quant.uniform import uniform_mix

__all__ = ["search_kv"]

_ALONE_WINDOWS = 1
"""Of held-out text, on which each layer is measured alone."""

_STEPS_SAID = 30


def search_kv(path: Path, arguments: KvArguments) -> KvResult:
    """All of it; progress goes to standard error."""
    if (arguments.budget_kl is None) == (arguments.bits is None):
        raise ConfigError("--budget-kl", arguments.budget_kl, "it or --bits, and not both")
    for key, value in (("--budget-kl", arguments.budget_kl), ("--bits", arguments.bits)):
        if value is not None and not 0.0 < value < float("inf"):
            raise ConfigError(key, value, "a number above 0")
    if arguments.measured is not None:
        check_place(arguments.measured, key="--measured")
    model = ReferenceModel(path, threads=arguments.threads or os.cpu_count() or 1)
    read = texts(model, arguments)
    model.calibrate(read.calibration)
    data = _data(model, read, arguments.measured)
    search = Search(data)
    choice = _choice(search, model, read, arguments)
    mix = search.mix(choice)
    judged = judge(model, read.held_out, mix)
    some = read.held_out[:_ALONE_WINDOWS]
    return KvResult(
        facts=data.facts,
        budget_kl=arguments.budget_kl,
        bits_per_value=search.bits_per_value(choice),
        mix=mix,
        judged=judged,
        alone=layers_alone(model, some, mix),
        together=judge(model, some, mix).mean,
        effects={
            (each.slot, each.format.name): each
            for each in data.effects
            if mix[each.slot].name == each.format.name
        },
        engines=_engines(search, model, read, arguments.budget_kl or judged.mean),
    )


def _data(model: ReferenceModel, read: Texts, kept: Path | None) -> SearchData:
    capture = model.capture(read.calibration)
    if kept is not None and kept.exists():
        try:
            data = msgspec.msgpack.decode(kept.read_bytes(), type=SearchData)
        except (msgspec.MsgspecError, OSError):
            raise ConfigError("--measured", str(kept), "a file of mileage quant kv") from None
        if data.facts != capture.facts:
            expected = "measured of this model and text; name another file, or give what it is of"
            raise ConfigError("--measured", str(kept), expected)
        return data
    tried = fitting(tuple(dict.fromkeys((*IDEAL, *ENGINE_FORMATS))), model.head_dim)
    anchors: Formats = {side: fitting(names, model.head_dim) for side, names in ANCHORS.items()}
    _say("the formats' effects on attention")
    data = look(
        model,
        capture,
        read.calibration,
        formats={"k": tried, "v": tried},
        anchors=anchors,
        progress=_progress,
    )
    if kept is not None:
        with whole_file(kept, key="--measured") as file:
            file.write(msgspec.msgpack.encode(data))
    return data


def _choice(search: Search, model: ReferenceModel, read: Texts, arguments: KvArguments) -> Choice:
    if arguments.bits is not None:
        choice = search.within_bits(arguments.bits)
        if choice is None:
            expected = f"at least {search.bits_least:.2f} bits, the fewest that the formats take"
            raise ConfigError("--bits", arguments.bits, expected)
        return choice
    assert arguments.budget_kl is not None
    found = fit_kl(search, model, read.calibration, arguments.budget_kl, say=_say)
    if found is None:
        expected = f"at least {search.kl_least:.1e} nats, the least that the formats reach"
        raise ConfigError("--budget-kl", arguments.budget_kl, expected)
    return found.choice


def _engines(
    search: Search, model: ReferenceModel, read: Texts, kl_max: float
) -> tuple[tuple[Expressed, float | None], ...]:
    """Each engine's setting, and its KL on held-out text; without layers that it leaves out."""
    found = []
    for each in expressed(search, kl_max):
        _say(f"{each.engine}: {each.k} / {each.v}")
        kl = None
        if each.flags:
            skipped = set(each.skipped_layers)
            whole = uniform_mix(search.slots, format_named(each.k), format_named(each.v))
            mix = {slot: form for slot, form in whole.items() if slot.layer not in skipped}
            kl = judge(model, read.held_out, mix).mean
        found.append((each, kl))
    return tuple(found)


def _progress(done: int, of: int) -> None:
    if done == of or done % _STEPS_SAID == 0:
        _say(f"slots measured alone: {done} of {of}")


def _say(text: str) -> None:
    typer.echo(text, err=True)
