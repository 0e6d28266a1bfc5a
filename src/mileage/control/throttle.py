"""Throttle: how many requests one replica runs, and what it showed since that was last decided."""

from __future__ import annotations

import math

import msgspec

from mileage.control.config import GovernorConfig
from mileage.control.engine_slots import EngineSlots
from mileage.control.flight import Flight
from mileage.control.forecast import ServiceForecast, Speed
from mileage.control.own_limit import own_limit, within
from mileage.control.prefill_cost import PrefillCost
from mileage.control.prefill_queue import PrefillQueue
from mileage.core.events import Finished
from mileage.core.replica import ReplicaView
from mileage.core.slo import Slo
from mileage.policy.limits.limit import LimitDecision, LimitPolicy, LimitSignals, RequestSample

__all__ = ["CALM_RATIO", "Throttle"]

CALM_RATIO = 0.5
"""First tokens that are expected within so much of their target are not looked at more closely."""
_SAMPLES_MAX = 24
"""Of one period; later ones of it are left out. A policy takes 20 to 50 us for each, in one go."""


class Throttle:
    """One replica's limit, and the policy that decides it.

    Time integrals of what is in flight (requests, and the tokens of their context) and the count of
    prompt tokens prefilled say, as differences between a request's first token and its last, what
    the replica did meanwhile: a sample of its step time, at constant cost per request.
    """

    __slots__ = (
        "_audio",
        "_changed_s",
        "_decided",
        "_decoding_s",
        "_images",
        "_in_flight_s",
        "_in_time",
        "_kv_s",
        "_kv_tokens",
        "_ordered_s",
        "_peak",
        "_policy",
        "_prefilled",
        "_prefilling",
        "_samples",
        "arrivals",
        "calm_tokens",
        "cost",
        "done",
        "due_s",
        "failed",
        "in_flight",
        "limit",
        "own_limit",
        "prefill_cost",
        "prefill_queue",
        "prefill_tokens",
        "prefill_tokens_max",
        "reason",
        "service",
        "slots",
        "speed",
        "view",
    )

    def __init__(self, policy: LimitPolicy, limit: int) -> None:
        self._policy = policy
        self.limit = limit
        """Requests that the replica runs at once."""
        self._in_time = False
        self.own_limit = limit
        """Our share of that, where several gateways' workers stand before it."""
        self.reason = "as at the start"
        self.prefill_tokens_max: int | None = None
        self.in_flight = 0
        self.cost = 0.0
        """Of the requests in flight (`Flight.cost`)."""
        self.prefill_tokens = 0.0
        """Of prompts sent whose first token has not come yet."""
        self.prefill_queue: PrefillQueue | None = None
        """The same prompts in the engine's order, where that is by deadline; None: as sent."""
        self.calm_tokens = math.inf
        """With so many of them, one more included, no first token is going to be late."""
        self.slots = EngineSlots()
        self.view: ReplicaView | None = None
        self.due_s = -math.inf
        self.failed = False
        """The policy raised: the limit is what the engine itself runs."""
        self.service = ServiceForecast()
        self.speed = Speed()
        self.done = 0.0
        """Work finished since the last decision (`Flight.cost`)."""
        self._decided = (0.0, 0.0)
        self._samples: list[RequestSample] = []
        self.prefill_cost = PrefillCost()
        self.arrivals = 0
        """Requests that the router would have sent here, since the last decision."""
        self._peak = 0
        self._images = self._audio = 0
        self._kv_tokens = 0.0
        self._changed_s = 0.0
        self._ordered_s = -math.inf
        self._prefilling = 0
        self._in_flight_s = self._kv_s = self._decoding_s = self._prefilled = 0.0

    @property
    def policy(self) -> LimitPolicy:
        """What decides the limit."""
        return self._policy

    def use(self, policy: LimitPolicy) -> None:
        """Decide by another policy from now on."""
        self._policy = policy
        self.due_s = -math.inf
        self.failed = False
        self.prefill_tokens_max = None

    def order(self, config: GovernorConfig, now_s: float) -> None:
        """Engines prefill in this order from now on: by deadline, or as they are sent prompts."""
        inside = config.policy == "model" and config.model.engine_policies
        if inside == (self.prefill_queue is not None):
            return
        self.prefill_queue = PrefillQueue() if inside else None
        # What stands before a prompt is counted otherwise from now on: in work, or in tokens.
        self.service, self._ordered_s = ServiceForecast(), now_s
        self.calm_tokens = math.inf

    def has_room(self, prompt_tokens: float) -> bool:
        """Whether a request with such a context may be sent now."""
        if self.in_flight >= self.own_limit:
            return False
        bound = self.prefill_tokens_max
        return (
            bound is None
            or not self.prefill_tokens
            or (self.prefill_tokens + prompt_tokens <= bound)
        )

    def service_s(self, flight: Flight, now_s: float) -> float:
        """Seconds from its dispatch to its first token, on the safe side; 0 while not known."""
        service, queue = self.service, self.prefill_queue
        if not service.known:
            return 0.0
        own, ahead = flight.prompt_tokens, self.prefill_tokens
        if queue is not None:
            own, ahead = queue.work(flight), queue.before(flight.deadline_s, now_s)
        # Whenever it is sent, there are as many others as the limit admits, and no more.
        others = min(self.in_flight, self.own_limit - 1)
        return service.predict(own, ahead, others) * (1.0 + service.residual_ratio)

    @property
    def idle(self) -> bool:
        """Nothing has happened here since the last decision."""
        return not (self._peak or self.arrivals or self._samples) and self.due_s > -math.inf

    # --- what happens -------------------------------------------------------------------------

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._changed_s
        if passed_s > 0.0:
            self._changed_s = now_s
            in_flight = self.in_flight
            self._in_flight_s += in_flight * passed_s
            self._kv_s += self._kv_tokens * passed_s
            self._decoding_s += (in_flight - self._prefilling) * passed_s

    def started(self, flight: Flight, now_s: float) -> None:
        """The request is sent."""
        self._pass(now_s)
        in_flight, prompt_tokens = self.in_flight, flight.prompt_tokens
        self.in_flight = in_flight + 1
        if in_flight >= self._peak:
            self._peak = in_flight + 1
        self._kv_tokens += prompt_tokens
        self.cost += flight.cost
        request = flight.request
        if request.image_patches or request.audio_frames:
            self._images += request.image_patches > 0
            self._audio += request.audio_frames > 0
        if request.stream:
            flight.first_token_s = None
            queue = self.prefill_queue
            flight.ahead_tokens, flight.others = self.prefill_tokens, in_flight
            if queue is not None:
                flight.ahead_tokens = queue.add(flight, now_s)
            self._prefilling += 1
            self.prefill_tokens += prompt_tokens
        else:
            self._prefilled += prompt_tokens
        flight.mark = (self._in_flight_s, self._kv_s, self._prefilled, self._decoding_s)

    def first_token(self, flight: Flight, now_s: float) -> None:
        """Its first token came."""
        if flight.first_token_s is not None or not flight.request.stream:
            return
        self._pass(now_s)
        prompt_tokens = flight.prompt_tokens
        flight.first_token_s = now_s
        own, queue = prompt_tokens, self.prefill_queue
        if queue is not None:
            own = queue.work(flight)
            queue.remove(flight, now_s)
        self._prefilling -= 1
        left = self.prefill_tokens - prompt_tokens
        self.prefill_tokens = left if left > 0.0 else 0.0
        self._prefilled += prompt_tokens
        flight.mark = (self._in_flight_s, self._kv_s, self._prefilled, self._decoding_s)
        service = self.service
        if now_s >= service.due_s and flight.started_s > self._ordered_s:
            took_s = now_s - flight.started_s
            service.learn(own, flight.ahead_tokens, flight.others, took_s, now_s)

    def ended(self, flight: Flight, now_s: float, answer: Finished | None = None) -> None:
        """It is there no longer, however it ended; `answer`: where it was answered well."""
        self._pass(now_s)
        if answer is not None:
            if len(self._samples) < _SAMPLES_MAX:
                self._sample(flight, answer, now_s)
            if flight.first_token_s is not None:
                computed = flight.prompt_tokens - (answer.cached_tokens or 0)
                flight.pool.speed.learn(computed, flight.first_token_s - flight.started_s)
        in_flight = self.in_flight = self.in_flight - 1
        request, prompt_tokens = flight.request, flight.prompt_tokens
        if request.image_patches or request.audio_frames:
            self._images -= request.image_patches > 0
            self._audio -= request.audio_frames > 0
        if request.stream and flight.first_token_s is None:
            self._prefilling -= 1
            self.prefill_tokens -= prompt_tokens
            if self.prefill_queue is not None:
                self.prefill_queue.remove(flight, now_s)
        if in_flight:
            self._kv_tokens -= prompt_tokens
            self.cost -= flight.cost
        else:
            # Exactly 0 when idle, whatever floating-point sums have left over.
            self.prefill_tokens = self._kv_tokens = self.cost = 0.0

    def _sample(self, flight: Flight, answer: Finished, now_s: float) -> None:
        """What the request shows, in the moment of its end."""
        output = answer.output_tokens
        if not output or output < 0:
            return
        request = flight.request
        first_s = flight.first_token_s
        since_s = flight.started_s if first_s is None else first_s
        steps = output if first_s is None else output - 1
        took_s = now_s - since_s
        if steps < 1 or took_s <= 0.0:
            return
        in_flight_s, kv_s, prefilled, decoding_s = flight.mark
        own = flight.prompt_tokens if first_s is None else 0.0
        self._samples.append(
            RequestSample(
                prompt_tokens=answer.prompt_tokens or int(flight.prompt_tokens),
                output_tokens=output,
                stream=request.stream,
                ttft_s=None if first_s is None else first_s - request.arrived_s,
                service_ttft_s=None if first_s is None else first_s - flight.started_s,
                itl_p99_s=answer.itl_p99_s,
                step_s=took_s / steps,
                running_mean=(self._in_flight_s - in_flight_s) / took_s,
                # What it generates itself is in its context too, half of it on average.
                kv_tokens_mean=(self._kv_s - kv_s) / took_s + output / 2,
                prefill_tokens_per_step=(self._prefilled - prefilled + own) / steps,
                decoding_mean=(self._decoding_s - decoding_s) / took_s,
                prefill_tokens=flight.prompt_tokens,
            )
        )

    def observed(self, view: ReplicaView) -> None:
        """The replica was scraped."""
        if self.view is not None and view.observed_s <= self.view.observed_s:
            return
        self.view = view
        self.slots.observed(view)

    def told_max(self, running_max: int | None) -> None:
        """The operator says how many requests the engine runs at once; None: nothing."""
        self.slots.told = running_max

    def restarted(self, policy: LimitPolicy, limit: int) -> None:
        """The replica is up again, perhaps another engine under the name: all begins anew."""
        self._policy, self.limit, self.own_limit = policy, limit, limit
        self.failed = False
        self.prefill_tokens_max = None
        self.due_s = -math.inf  # also where it stood idle: our share of this limit is less
        self.view = None
        self.slots.forget()
        self.service = ServiceForecast()
        self.speed = Speed()
        self.prefill_cost = PrefillCost()
        if self.prefill_queue is not None:
            self.prefill_queue = PrefillQueue()
        self.calm_tokens = math.inf
        self._samples.clear()

    # --- decisions ----------------------------------------------------------------------------

    def decide(
        self,
        now_s: float,
        *,
        waiting: int,
        slo: Slo,
        bounds: tuple[int, int],
        share_ratio: float,
        period_s: float,
    ) -> bool:
        """Ask the policy; whether the limit has changed. A policy that raises is not asked again:
        the replica then runs what the engine itself does."""
        self.due_s = now_s + period_s
        self._in_time = slo.ttft_s is not None
        if self.failed:
            decision = LimitDecision(bounds[1], self.reason)
        else:
            try:
                signals = self._signals(waiting, slo, 1.0 / share_ratio)
                decision = self._policy.update(signals, now_s)
            except Exception as error:
                self.failed = True
                decision = LimitDecision(bounds[1], f"the policy failed: {type(error).__name__}")
        self.prefill_cost.learn(self._samples)
        self._learn_speed(now_s)
        self._samples.clear()
        self.arrivals, self._peak = 0, self.in_flight
        limit = within(decision.limit, *bounds, self.slots.most or 0)
        changed = limit != self.limit
        if changed or self.failed:
            self.reason = decision.reason
        self.limit = limit
        bound = decision.prefill_tokens_max
        self.prefill_tokens_max = None if bound is None else math.ceil(bound * share_ratio)
        self.share(share_ratio)
        return changed

    def keep_calm(self, ttft_s: float | None) -> None:
        """The shortest target for the first token of all that may be sent here; None: none."""
        if ttft_s is None:
            self.calm_tokens = math.inf
        elif self.prefill_queue is not None:
            # What was learned is in terms of work, and who is before whom goes by deadline.
            self.calm_tokens = -math.inf if self.service.known else math.inf
        else:
            self.calm_tokens = self.service.tokens_within(CALM_RATIO * ttft_s, self.in_flight)

    def share(self, ratio: float) -> None:
        """So much of the limit is ours."""
        self.own_limit = own_limit(self.limit, self.slots.most or 0, self._in_time, ratio)

    def _learn_speed(self, now_s: float) -> None:
        self._pass(now_s)
        at_s, in_flight_s = self._decided
        self.speed.learn(self.done, self._in_flight_s - in_flight_s, now_s - at_s)
        self.done = 0.0
        self._decided = (now_s, self._in_flight_s)

    def _signals(self, waiting: int, slo: Slo, scale: float) -> LimitSignals:
        """`scale`: limits are of the replica, and what we have there is one share of it."""
        in_flight, images, audio = self.in_flight, self._images, self._audio
        counts = (max(0, in_flight - images - audio), images, audio)
        samples = tuple(self._samples)
        if scale != 1.0:
            samples = tuple(_scaled(sample, scale) for sample in samples)
        return LimitSignals(
            view=self.view,
            running_max=self.slots.most,
            in_flight=round(in_flight * scale),
            in_flight_peak=round(self._peak * scale),
            waiting=round(waiting * scale),
            arrivals=self.arrivals * scale,
            samples=samples,
            ttft_target_s=slo.ttft_s,
            itl_target_s=slo.itl_s,
            modality_counts=counts,
            load_mean=self._kv_tokens / in_flight if in_flight else 0.0,
        )


def _scaled(sample: RequestSample, scale: float) -> RequestSample:
    return msgspec.structs.replace(
        sample,
        running_mean=sample.running_mean * scale,
        kv_tokens_mean=sample.kv_tokens_mean * scale,
        prefill_tokens_per_step=sample.prefill_tokens_per_step * scale,
        decoding_mean=sample.decoding_mean * scale,
    )
