"""An engine's log, of its start and of its work, as facts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.kv_pool_lines import KvPoolLines
from mileage.doctor.collect.log_line import LogLine, log_lines
from mileage.doctor.collect.log_settings import LogSettings
from mileage.doctor.collect.log_troubles import LogTroubles
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.start_lines import STARTS
from mileage.doctor.collect.startup_phases import StartupPhases
from mileage.doctor.collect.stats_lines import StatsLines

__all__ = ["log_facts"]

LINES_MAX: Final = 500_000
KEPT_MAX: Final = 200
KEPT_LINE_MAX: Final = 2_000
_ENGINE_WORDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("vllm", ("Avg generation throughput", "vLLM", "vllm.", "gpu_model_runner.py", "# GPU blocks")),
    ("sglang", ("Decode batch", "Prefill batch", "ServerArgs(", "sglang")),
    ("tensorrt-llm", ("[TensorRT-LLM]", "[TRT-LLM]", "TRTGptModel")),
    ("llama.cpp", ("llama_model_loader", "llama_context", "print_info:", "srv  ")),
)
"""Words that one engine's lines alone have."""
_START_STEP_S: Final = 5.0
_V1_STATS: Final = re.compile(r"Engine \d{3}: Avg prompt")
_V0_STATS: Final = re.compile(r"Swapped: \d+ reqs, Pending:")
_LLAMACPP_MODEL: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = (
    ("model", "params_b", re.compile(r"print_info: model params\s*= ([\d.]+) B")),
    ("model", "weights_gib", re.compile(r"print_info: file size\s*= ([\d.]+) GiB")),
    ("model", "kv_heads", re.compile(r"print_info: n_head_kv\s*= (\d+)$")),
)
_LLAMACPP_EVAL: Final = re.compile(
    r"(?<!prompt )eval time =\s*([\d.]+) ms /\s*(\d+) (?:tokens|runs)"
)


def log_facts(lines: Iterable[str]) -> FactsDocument:
    """Facts of a log's lines, oldest first; of a log that says nothing that we know, none.

    Reads at most 500,000 lines. Of several starts the newest counts, but for what went wrong.
    `logs` of the document are the last 200 lines that told something.
    """
    start, troubles, model, engine = _Start(), LogTroubles(), _Model(), _Engine()
    kept: list[str] = []
    for line in log_lines(islice(lines, LINES_MAX)):
        engine.take(line)
        if engine.began_anew(line):
            start = _Start()
        told = [reader.take(line) for reader in (*start.readers, troubles, model)]
        if any(told):
            kept.append(line.text[:KEPT_LINE_MAX])
            del kept[:-KEPT_MAX]
    document = start.settings.document()
    ranks = document.get("hardware", {}).get("count")
    if start.phases.weights_gib is not None and ranks is not None:
        model.values["weights_gib"] = start.phases.weights_gib * ranks
    if start.phases.checkpoint_gib:  # of the files: what workers hold has been converted
        model.values["weights_gib"] = start.phases.checkpoint_gib
    settings = {**start.phases.settings(), **troubles.network(), **troubles.settings}
    if start.stats.max_num_seqs is not None:
        settings["max_num_seqs"] = start.stats.max_num_seqs
    signals = {
        **model.signals(),
        **start.stats.signals(),
        **start.phases.signals(),
        **start.pool.signals(document.get("settings", {}).get("block_size")),
        **troubles.signals(),
        "process_restarts_count": engine.restarts,
    }
    return overlay(
        document,
        facts_document(
            engine=engine.values(),
            model=model.values,
            settings=settings,
            signals=signals,
            logs=kept,
        ),
    )


class _Start:
    """What is told of one start, and of the work after it."""

    def __init__(self) -> None:
        self.settings, self.phases = LogSettings(), StartupPhases()
        self.pool, self.stats = KvPoolLines(), StatsLines()
        self.readers = (self.settings, self.phases, self.pool, self.stats)


class _Engine:
    """Which engine a log is of, by words that only its lines have."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._variant: str | None = None
        self._marks: dict[str, LogLine] = {}
        self.restarts: int | None = None
        """None where the log has no start."""

    def began_anew(self, line: LogLine) -> bool:
        """Is it the first line of a start after the first? API servers of one start say the same
        within seconds."""
        mark = next((words for words in STARTS if words in line.text), None)
        if mark is None:
            return False
        if self.restarts is None:
            self.restarts = 0
        before = self._marks.get(mark)
        if before is None or _within(before, line, _START_STEP_S):
            self._marks[mark] = line
            return False
        self._marks = {mark: line}
        self.restarts += 1
        return True

    def take(self, line: LogLine) -> None:
        for name, words in _ENGINE_WORDS:
            if any(word in line.text for word in words):
                self._counts[name] = self._counts.get(name, 0) + 1
        if _V1_STATS.search(line.text):
            self._variant = "v1"
        elif _V0_STATS.search(line.text):
            self._variant = "v0"

    def values(self) -> dict[str, Any]:
        if not self._counts:
            return {}
        name = max(self._counts, key=lambda engine: self._counts[engine])
        return {"name": name, "variant": self._variant if name == "vllm" else None}


def _within(before: LogLine, after: LogLine, seconds: float) -> bool:
    """Is one line at most so long after the other? Lines without a time are not known to be."""
    if before.at_s is None or after.at_s is None:
        return False
    return after.at_s - before.at_s < seconds


class _Model:
    """What llama.cpp writes of its model, and of the speed of each request."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._spent_ms = 0.0
        self._tokens = 0

    def take(self, line: LogLine) -> bool:
        found = False
        for _, name, pattern in _LLAMACPP_MODEL:
            if (match := pattern.search(line.text)) is not None:
                number = float(match[1].rstrip(".") or 0)
                self.values[name] = int(number) if name == "kv_heads" else number
                found = True
        if (match := _LLAMACPP_EVAL.search(line.text)) is not None:
            self._spent_ms += float(match[1].rstrip(".") or 0)
            self._tokens += int(match[2])
        return found

    def signals(self) -> dict[str, Any]:
        if self._tokens <= 0 or self._spent_ms <= 0:
            return {}
        spent_s = self._spent_ms / 1e3
        return {
            "itl_mean_s": spent_s / self._tokens,
            "output_tokens_per_s_per_request": self._tokens / spent_s,
        }
