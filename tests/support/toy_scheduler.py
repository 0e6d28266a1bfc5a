"""A scheduler with the attributes of vLLM's that Mileage's plugin reads and sets, and its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from mileage.vllm_plugin.capability import probe
from mileage.vllm_plugin.policy_host import PolicyHost
from mileage.vllm_plugin.policy_settings import PolicySettings

__all__ = ["ToyEngine", "ToyRequest", "ToyScheduler", "output_of", "policy_host"]

Job = tuple[float, int, int]
"""When it comes, its prompt's and its answer's tokens."""


class ToyRequest:
    """A request as vLLM's scheduler has it."""

    def __init__(self, name: str, prompt: int, output: int, arrived_s: float = 0.0) -> None:
        self.request_id = name
        self.num_prompt_tokens, self.max_tokens = prompt, output
        self.arrival_time = arrived_s
        self.num_computed_tokens = self.num_output_tokens = self.num_output_placeholders = 0
        self.is_prefill_chunk = False
        self.status = SimpleNamespace(name="WAITING")
        self.tokens_at: list[float] = []

    @property
    def num_tokens_with_spec(self) -> int:
        """Prompt and output so far."""
        return self.num_prompt_tokens + self.num_output_tokens


def output_of(
    new: Iterable[tuple[str, int, int]], cached: Sequence[tuple[str, int, int, int]]
) -> Any:
    """A scheduler's output: of new requests (id, computed before, tokens), of those that ran before
    (id, computed before, tokens, output tokens so far)."""
    fresh = [SimpleNamespace(req_id=name, num_computed_tokens=before) for name, before, _ in new]
    tokens = {name: count for name, _, count in new} | {each[0]: each[2] for each in cached}
    return SimpleNamespace(
        finished_req_ids=set(),
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_new_reqs=fresh,
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[each[0] for each in cached],
            num_computed_tokens=[each[1] for each in cached],
            num_output_tokens=[each[3] for each in cached],
        ),
        scheduled_spec_decode_tokens={},
    )


class ToyScheduler:
    """First come, first served: those that run, in their order, then those that wait."""

    def __init__(
        self, *, step_tokens_max: int = 2048, running_max: int = 64, prompt_block: int = 0
    ) -> None:
        """`prompt_block`: prompts are cut at whole blocks only."""
        self.need_mamba_block_aligned_split = bool(prompt_block)
        self.cache_config = SimpleNamespace(block_size=prompt_block)
        self.max_num_scheduled_tokens = step_tokens_max
        self.max_num_running_reqs = self.max_num_active_reqs = running_max
        self.scheduler_config = SimpleNamespace(
            enable_chunked_prefill=True, long_prefill_token_threshold=0, max_num_seqs=running_max
        )
        self.kv_cache_manager = SimpleNamespace(usage=0.0)
        self.waiting: deque[ToyRequest] = deque()
        self.running: list[ToyRequest] = []
        self.requests: dict[str, ToyRequest] = {}
        self.finished_req_ids: set[str] = set()

    def add(self, request: ToyRequest) -> None:
        """A request comes."""
        self.waiting.append(request)
        self.requests[request.request_id] = request

    def schedule(self) -> Any:
        """The next step."""
        budget = self.max_num_scheduled_tokens
        new, cached = [], []
        for request in self.running:
            left = request.num_tokens_with_spec - request.num_computed_tokens
            tokens = self._cut(request, min(left, budget))
            if tokens:
                before, out = request.num_computed_tokens, request.num_output_tokens
                cached.append((request.request_id, before, tokens, out))
                budget -= tokens
        while self.waiting and budget > 0 and len(self.running) < self.max_num_active_reqs:
            request = self.waiting[0]
            tokens = self._cut(request, min(request.num_prompt_tokens, budget))
            if not tokens:
                break
            self.waiting.popleft()
            request.status.name = "RUNNING"
            new.append((request.request_id, 0, tokens))
            self.running.append(request)
            budget -= tokens
        assert len(self.running) <= self.max_num_running_reqs, "vLLM ends here"
        output = output_of(new, cached)
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            request.num_computed_tokens += tokens
            request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens_with_spec
        output.finished_req_ids, self.finished_req_ids = self.finished_req_ids, set()
        return output

    def _cut(self, request: ToyRequest, tokens: int) -> int:
        """A chunk that ends where prompts may be cut."""
        end = request.num_computed_tokens + tokens
        block: int = self.cache_config.block_size
        if not block or end >= request.num_prompt_tokens:
            return tokens
        return max(0, end // block * block - request.num_computed_tokens)

    def update(self, output: Any, now_s: float) -> None:
        """The step's tokens are there."""
        for name in output.num_scheduled_tokens:
            request = self.requests[name]
            if request.is_prefill_chunk:
                continue
            request.num_output_tokens += 1
            request.tokens_at.append(now_s)
            if request.num_output_tokens == request.max_tokens:
                request.status.name = "FINISHED_LENGTH_CAPPED"
                self.running.remove(request)
                del self.requests[name]
                self.finished_req_ids.add(name)


def policy_host(scheduler: Any, settings: PolicySettings | None = None) -> PolicyHost:
    """The host of a scheduler's policies."""
    core = SimpleNamespace(scheduler=scheduler, vllm_config=SimpleNamespace())
    host = PolicyHost(scheduler, probe(core))
    host.configure(settings)
    return host


class ToyEngine:
    """Steps of a scheduler in virtual time, with policies inside."""

    def __init__(
        self,
        scheduler: ToyScheduler,
        host: PolicyHost,
        step_s: Callable[[int], float] = lambda tokens: 0.01 + 1e-4 * tokens,
    ) -> None:
        self.scheduler, self.host, self._step_s = scheduler, host, step_s
        self.now_s = 0.0
        self.beside: list[int] = []
        """Prompt tokens of each step in which others decoded."""
        self.active_most = 0

    def run(self, jobs: Iterable[Job]) -> list[ToyRequest]:
        """Until all are answered."""
        requests = [ToyRequest(str(i), p, o, at_s) for i, (at_s, p, o) in enumerate(jobs)]
        coming = deque(requests)
        while coming or self.scheduler.requests:
            if not self.scheduler.requests:
                self.now_s = max(self.now_s, coming[0].arrival_time)
            while coming and coming[0].arrival_time <= self.now_s:
                self.scheduler.add(coming.popleft())
            self.step()
        return requests

    def step(self) -> None:
        """One step."""
        self.host.begin(self.now_s, 0.0)
        begun_s, output = self.now_s, self.scheduler.schedule()
        tokens = output.num_scheduled_tokens
        assert tokens, "an engine with requests has a step"
        self.active_most = max(self.active_most, len(self.scheduler.running))
        prompts = sum(n for n in tokens.values() if n > 1)
        if prompts and len(tokens) > sum(n > 1 for n in tokens.values()):
            self.beside.append(prompts)
        self.now_s += self._step_s(output.total_num_scheduled_tokens)
        self.scheduler.update(output, self.now_s)
        self.host.ended(output, begun_s, self.now_s, self.now_s - begun_s)
