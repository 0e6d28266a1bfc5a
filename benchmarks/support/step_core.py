"""The step engine's scheduler: iteration-level continuous batching with a known step time.

Pure: the time and a seeded Random come in. A step takes one token of every sequence that decodes,
then chunks of prompts up to its token budget, in the order of arrival; the KV cache is counted in
blocks, and where it is full the youngest sequence is preempted and computed anew later. Nothing is
cached between requests.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from benchmarks.support.step_model import StepModel

__all__ = ["BLOCK_TOKENS", "CoreConfig", "Counters", "Sequence", "Step", "StepCore"]

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """`running_max`: sequences at once; `step_tokens_max`: tokens of one step.

    `noise_ratio`: standard deviation of a step's time over its mean, cut at three of them.
    With `batch_size` the engine does not batch continuously: it waits for so many requests, at most
    `batch_delay_s` after the first, runs them as one batch and answers them all at its end, as a
    server does that batches whole calls.
    """

    model: StepModel
    running_max: int = 256
    step_tokens_max: int = 512
    kv_blocks: int = 4096
    noise_ratio: float = 0.03
    batch_size: int | None = None
    batch_delay_s: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.running_max <= self.step_tokens_max:
            raise ValueError("running_max must be 1..step_tokens_max: each decodes in every step")
        if self.kv_blocks < 1:
            raise ValueError("kv_blocks must be at least 1")
        if not 0 <= self.noise_ratio < 1 / 3:
            raise ValueError("noise_ratio must be 0..1/3")
        if self.batch_size is not None and not 1 <= self.batch_size <= self.running_max:
            raise ValueError("batch_size must be 1..running_max")


class Sequence:
    """One request in the engine. `computed` of its `context` tokens are in the KV cache."""

    __slots__ = (
        "arrived_s",
        "blocks",
        "computed",
        "context",
        "gone",
        "output_tokens",
        "produced",
        "prompt_tokens",
        "tag",
    )

    def __init__(
        self, prompt_tokens: int, output_tokens: int, arrived_s: float, tag: str = ""
    ) -> None:
        self.prompt_tokens, self.output_tokens, self.tag = prompt_tokens, output_tokens, tag
        self.arrived_s = arrived_s
        self.context = prompt_tokens
        self.computed = self.produced = self.blocks = 0
        self.gone = False

    @property
    def done(self) -> bool:
        """Whether all its tokens are produced."""
        return self.produced >= self.output_tokens

    @property
    def decoding(self) -> bool:
        """Whether one token is all that is left to compute before the next one comes out."""
        return self.produced > 0 and self.context - self.computed == 1


@dataclass(slots=True)
class Counters:
    """Since the start. `running_s` is the time integral of the sequences that run; `compute_s` what
    the compute plane alone would have taken, at most `busy_s`. Prefilled tokens count again where a
    sequence was preempted; prompt tokens count once, with the first token of the answer."""

    steps: int = 0
    busy_s: float = 0.0
    running_s: float = 0.0
    compute_s: float = 0.0
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    preemptions: int = 0
    running_max: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one step computes, and how long that takes."""

    decodes: list[Sequence]
    prefills: list[tuple[Sequence, int]]
    duration_s: float
    compute_s: float


class StepCore:
    """Waiting and running sequences, and the KV cache's blocks.

    `begin` gives the next step, `end` its tokens; sequences may be added and aborted at any time.
    """

    def __init__(self, config: CoreConfig, rng: Random) -> None:
        self.config, self._rng = config, rng
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.blocks_free = config.kv_blocks
        self.counters = Counters()
        self.work: dict[str, list[int]] = {}
        """By tag: prompt tokens computed, decodes computed."""
        self._step: Step | None = None
        self._batched = config.batch_size is not None
        self._batch: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Take a request on. Raises ValueError for one that can never fit into the KV cache."""
        tokens = sequence.prompt_tokens + sequence.output_tokens
        if min(sequence.prompt_tokens, sequence.output_tokens) < 1:
            raise ValueError("a request has a prompt and an answer of at least one token each")
        if _blocks(tokens) > self.config.kv_blocks:
            raise ValueError(f"{tokens} tokens do not fit into the KV cache")
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a request whose client left."""
        if sequence.gone:
            return
        self.counters.aborted += 1
        if self._batched and sequence in self.running:
            return  # a whole call runs on
        sequence.gone = True
        self._release(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def due_s(self) -> float | None:
        """When a batch that waits for company starts without; None: it does not wait."""
        if not self._batched or self.running or not self.waiting:
            return None
        return self.waiting[0].arrived_s + self.config.batch_delay_s

    def kv_usage_ratio(self) -> float:
        """Share of the blocks that are taken."""
        return 1.0 - self.blocks_free / self.config.kv_blocks

    def begin(self, now_s: float) -> Step | None:
        """The next step; None where there is nothing to compute yet."""
        assert self._step is None, "a step at a time"
        preemptions = self.counters.preemptions
        decodes = self._decodes()
        budget = self.config.step_tokens_max - len(decodes)
        prefills: list[tuple[Sequence, int]] = []
        for sequence in self.running:
            if not sequence.decoding and not sequence.done and budget > 0:
                budget -= _take(sequence, budget, prefills)
        if self.counters.preemptions == preemptions:  # else what was freed would thrash
            self._admit(budget, prefills, now_s)
        if not decodes and not prefills:
            return None
        kv_tokens = sum(s.computed for s in decodes) + sum(s.computed for s, _ in prefills)
        prefill_tokens = sum(chunk for _, chunk in prefills)
        content = (len(decodes), kv_tokens, prefill_tokens)
        stretch = 1.0
        if self.config.noise_ratio:
            noise = min(3.0, max(-3.0, self._rng.gauss(0.0, 1.0)))
            stretch += self.config.noise_ratio * noise
        model = self.config.model
        self._step = Step(
            decodes,
            prefills,
            duration_s=stretch * model.step_s(*content),
            compute_s=stretch * model.compute.step_s(*content),
        )
        return self._step

    def end(self) -> list[Sequence]:
        """The step is over: the sequences that have one token more each, or an answer.

        Where calls are batched whole it is the sequences of a batch that is over.
        """
        step, self._step = self._step, None
        assert step is not None, "no step was begun"
        produced = []
        for sequence, chunk in step.prefills:
            if not sequence.gone:
                sequence.computed += chunk
                self._worked(sequence, prefilled=chunk)
                if sequence.computed == sequence.context:
                    produced.append(sequence)
        for sequence in step.decodes:
            if not sequence.gone:
                sequence.computed += 1
                self._worked(sequence, decoded=1)
                produced.append(sequence)
        counters = self.counters
        for sequence in produced:
            if sequence.produced == 0:
                counters.prompt_tokens += sequence.prompt_tokens
            sequence.produced += 1
            sequence.context += 1
        counters.steps += 1
        counters.busy_s += step.duration_s
        counters.compute_s += step.compute_s
        counters.running_s += step.duration_s * len(self.running)
        counters.output_tokens += len(produced)
        counters.running_max = max(counters.running_max, len(self.running))
        self._retire([sequence for sequence in produced if sequence.done])
        return self._answered() if self._batched else produced

    def _decodes(self) -> list[Sequence]:
        """Those that decode now; the youngest give way where the cache has no block for them."""
        decodes: list[Sequence] = []
        at = 0
        while at < len(self.running):
            sequence = self.running[at]
            at += 1
            if not sequence.decoding:
                continue
            missing = max(0, _blocks(sequence.context) - sequence.blocks)
            while missing > self.blocks_free:
                victim = self.running.pop()
                self._preempt(victim)
                if victim is sequence:
                    return decodes
            self.blocks_free -= missing
            sequence.blocks += missing
            decodes.append(sequence)
        return decodes

    def _admit(self, budget: int, prefills: list[tuple[Sequence, int]], now_s: float) -> None:
        if self._batched:
            due_s, size = self.due_s(), self.config.batch_size or 0
            if due_s is not None and (len(self.waiting) >= size or now_s >= due_s):
                self._admit_batch(size, budget, prefills)
            return
        room = self.config.running_max - len(self.running)
        while self.waiting and room > 0 and budget > 0 and self._fits(self.waiting[0].context):
            budget -= _take(self._start(self.waiting[0].context), budget, prefills)
            room -= 1

    def _admit_batch(self, size: int, budget: int, prefills: list[tuple[Sequence, int]]) -> None:
        """All at once, each with the blocks of its whole answer: a batch never loses a member."""
        while self.waiting and len(self.running) < size:
            tokens = self.waiting[0].prompt_tokens + self.waiting[0].output_tokens
            if not self._fits(tokens):
                return
            sequence = self._start(tokens)
            self._batch.append(sequence)
            if budget > 0:
                budget -= _take(sequence, budget, prefills)

    def _fits(self, tokens: int) -> bool:
        return _blocks(tokens) <= self.blocks_free

    def _start(self, tokens: int) -> Sequence:
        """Let the first that waits run, with blocks for so many tokens."""
        sequence = self.waiting.popleft()
        sequence.blocks = _blocks(tokens)
        self.blocks_free -= sequence.blocks
        self.running.append(sequence)
        return sequence

    def _preempt(self, sequence: Sequence) -> None:
        """Drop what was computed; it is first in line to be computed again."""
        self._release(sequence)
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        self.counters.preemptions += 1

    def _retire(self, done: list[Sequence]) -> None:
        for sequence in done:
            sequence.gone = True
            self._release(sequence)
            self.counters.finished += 1
        if done:
            self.running = [sequence for sequence in self.running if not sequence.gone]

    def _answered(self) -> list[Sequence]:
        if self.running:
            return []
        batch, self._batch = self._batch, []
        return [sequence for sequence in batch if sequence.done]

    def _release(self, sequence: Sequence) -> None:
        self.blocks_free += sequence.blocks
        sequence.blocks = 0

    def _worked(self, sequence: Sequence, *, prefilled: int = 0, decoded: int = 0) -> None:
        self.counters.prefill_tokens += prefilled
        work = self.work.setdefault(sequence.tag, [0, 0])
        work[0] += prefilled
        work[1] += decoded


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def _take(sequence: Sequence, budget: int, prefills: list[tuple[Sequence, int]]) -> int:
    """Put the next chunk of a prompt into the step; gives its tokens."""
    chunk = min(sequence.context - sequence.computed, budget)
    prefills.append((sequence, chunk))
    return chunk
