"""Runs requests through vLLM's own scheduler with Mileage's policies inside, in virtual time.

`python -m tests.support.vllm_policies`, by vLLM's Python. Reads one JSON document from stdin:
`config` as `vllm_schedule` takes it, `policy` as /mileage/control takes it (null: none), `requests`
as [arrival in seconds, prompt tokens, output tokens], `scheduler`: "hook", or "class" for Mileage's
own scheduler class, `blocks`: prompts are cut at whole blocks, as for models with Mamba layers, and
`step_s` as [a step's, a token's seconds]. Prints a JSON object: of each
request when its tokens came and its preemptions; of each step its tokens of prompts, and how many
decoded; and whether all that the host changed was set back in the end.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mileage.vllm_plugin import scheduler_class
from mileage.vllm_plugin.capability import probe
from mileage.vllm_plugin.policy_host import PolicyHost
from mileage.vllm_plugin.policy_settings import decode_policy
from mileage.vllm_plugin.step_reading import step_taken
from tests.support.vllm_schedule import MODEL, make_scheduler

_STEPS_MAX = 200_000


class _Run:
    """One engine in virtual time."""

    def __init__(self, document: dict[str, Any], model: Path) -> None:
        build = scheduler_class.make_scheduler if document["scheduler"] == "class" else None
        self.scheduler = make_scheduler(document["config"], model, build)
        assert self.scheduler.need_mamba_block_aligned_split is False
        self.scheduler.need_mamba_block_aligned_split = document["blocks"]
        self.base_s, self.token_s = document["step_s"]
        core = SimpleNamespace(scheduler=self.scheduler, vllm_config=self.scheduler.vllm_config)
        self.host = PolicyHost(self.scheduler, probe(core))
        self.host.configure(decode_policy(document["policy"]))
        self.now_s = 0.0
        self.steps: list[tuple[int, int]] = []
        self.tokens_at: dict[str, list[float]] = {}
        self.requests: dict[str, Any] = {}
        self._fresh = 1 << 29
        self._waited = False

    def step(self) -> None:
        """One step of the engine."""
        from vllm.v1.outputs import ModelRunnerOutput

        self.host.begin(self.now_s, 0.0)
        begun_s, output = self.now_s, self.scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        if ids:
            took_s = self.base_s + self.token_s * output.total_num_scheduled_tokens
            self.now_s += took_s
            taken = step_taken(output)
            self.steps.append((taken.prefill_tokens, taken.decoding))
        else:
            assert not self._waited, "two steps with nothing in them: nothing goes on"
        self._waited = not ids
        sampled = [self._sampled(each) for each in ids]
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={each: i for i, each in enumerate(ids)},
                sampled_token_ids=sampled,
            ),
        )
        self.host.ended(output, begun_s, self.now_s, self.now_s - begun_s)

    def _sampled(self, name: str) -> list[int]:
        request = self.requests[name]
        if request.num_computed_tokens < request.num_tokens:
            return []
        self._fresh += 1
        self.tokens_at[name].append(self.now_s)
        return [self._fresh]


def _run(document: dict[str, Any], model: Path) -> dict[str, Any]:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(document["config"]["block_tokens"], sha256)
    run = _Run(document, model)
    scheduler = run.scheduler
    start = (scheduler.max_num_scheduled_tokens, scheduler.max_num_active_reqs)
    coming = list(enumerate(document["requests"]))
    while coming or scheduler.has_requests():
        assert len(run.steps) < _STEPS_MAX, "too many steps"
        if not scheduler.has_requests():
            run.now_s = max(run.now_s, coming[0][1][0])
        while coming and coming[0][1][0] <= run.now_s:
            index, (arrived_s, prompt, output) = coming.pop(0)
            request = Request(
                request_id=str(index),
                prompt_token_ids=[2**20 + index * 2**14 + i for i in range(prompt)],
                sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
                pooling_params=None,
                arrival_time=arrived_s,
                block_hasher=hasher,
            )
            run.requests[str(index)] = request
            run.tokens_at[str(index)] = []
            scheduler.add_request(request)
        run.step()
    told = run.host.document()
    run.host.configure(None)
    return {
        "tokens_at": list(run.tokens_at.values()),
        "preemptions": [request.num_preemptions for request in run.requests.values()],
        "steps": run.steps,
        "policy": told,
        "set_back": start == (scheduler.max_num_scheduled_tokens, scheduler.max_num_active_reqs),
    }


def main() -> None:
    """Read a list of documents, print a list of results on the last line."""
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory)
        (model / "config.json").write_text(json.dumps(MODEL))
        results = [_run(document, model) for document in json.load(sys.stdin)]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
