"""What the hardware could reach with this model: bounds by physics, to compare signals with."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import architecture as find_architecture
from mileage.costmodel.catalogue import gpu as find_gpu
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.gpu_names import gpu_of_driver
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.weight_words import bytes_per_weight, is_unquantised

__all__ = ["Machine"]

GIB = float(1 << 30)

BANDWIDTH_REACHED = Interval(0.45, 0.95)
"""Share of the data sheet's memory bandwidth that decode kernels reach; below its lower end
something else than memory sets the pace. Measured steps of engines lie between (see
`mileage simulate fit`, docs/explanation/step-time.md)."""

COMPUTE_REACHED = Interval(0.25, 0.85)
"""Share of the data sheet's rate that the GEMMs of long prompts reach."""

MEMORY_SPARE = 0.9
"""Share of a card that weights may take, so that a cache and activations still fit."""

KV_SPARE = Interval(0.75, 1.0)
"""Share of the memory beside weights that an engine's cache gets: the rest is the CUDA context,
the buffers of collectives and the activations of the largest step."""

SIZE_IN_NAME = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
EXPERTS_IN_NAME = re.compile(r"\d+x\d")
VARIANT_IN_NAME = re.compile(
    r"[-_.](awq|gptq|int4|int8|fp8|nvfp4|mxfp4|w4a16|w8a8|bnb|gguf|marlin|bf16|fp16|4bit|8bit)\b.*"
)


@lru_cache(maxsize=256)
def _architecture(name: str) -> Architecture | None:
    """The architecture of that name. Kept, for looking in vain costs a search for names like it,
    and each rule of a diagnosis asks anew."""
    try:
        return find_architecture(name)
    except ConfigError:
        return None


@lru_cache(maxsize=256)
def _gpu(name: str) -> Gpu | None:
    """The card of that name in the catalogue. Kept, as an architecture is."""
    try:
        return find_gpu(name)
    except ConfigError:
        return None


class Machine:
    """Bounds for the deployment of `evidence`; every figure is an interval, `ANY` if unknown."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    @cached_property
    def gpu(self) -> Gpu | None:
        """The card, where the catalogue knows it. `hardware.memory_gb` tells variants apart."""
        name = self._evidence.text("hardware.gpu")
        if name is None:
            return None
        stated = self._evidence.number("hardware.memory_gb").value
        size = int(stated.low * GIB) if stated.exact and 0 < stated.low < 1e6 else None
        found = _gpu(name)
        if found is None:
            return gpu_of_driver(name, memory_total_bytes=size)
        if size is not None and abs(found.memory_gb / stated.low - 1) > 0.1:
            return gpu_of_driver(f"{name} {stated.low:g}GB") or found
        return found

    @cached_property
    def architecture(self) -> Architecture | None:
        """The model's shape, where the catalogue knows its name (less a suffix such as `-AWQ`)."""
        name = self._evidence.text("model.name")
        if name is None:
            return None
        return _architecture(name) or _architecture(VARIANT_IN_NAME.sub("", name))

    @property
    def parameters_b(self) -> Interval:
        """All parameters in 1e9: as stated, else of the known architecture, else by the name."""
        stated = self._evidence.number("model.params_b")
        if stated.known:
            return stated.value
        known = self.architecture
        if known is not None:
            return exactly(known.parameters / 1e9)
        name = self._evidence.text("model.name") or ""
        sizes = SIZE_IN_NAME.findall(name)
        # "8x7B" is neither 8 x 7 nor 7; of several sizes one is that of a draft or active part.
        if len(sizes) == 1 and not EXPERTS_IN_NAME.search(name):
            return exactly(float(sizes[0]))
        return ANY

    @property
    def memory_gb(self) -> Interval:
        """Memory of one card."""
        stated = self._evidence.number("hardware.memory_gb")
        if stated.known:
            return stated.value
        card = self.gpu
        return exactly(card.memory_gb) if card is not None else ANY

    @property
    def gpus_per_replica(self) -> Interval:
        """Cards that share one copy of the weights: tensor times pipeline parallel."""
        tensor = self._evidence.number("tensor_parallel_size")
        if not tensor.known:
            count = self._evidence.number("hardware.count")
            if not count.known:
                return ANY
            replicas = self._evidence.number("data_parallel_size")
            return count.value.over(replicas.value) if replicas.known else count.value
        stages = self._evidence.number("pipeline_parallel_size")
        return tensor.value.times(stages.value if stages.known else exactly(1.0))

    @property
    def weights_gib(self) -> Interval:
        """All weights of one copy."""
        stated = self._evidence.number("model.weights_gib")
        if stated.known:
            return stated.value
        parameters = self.parameters_b
        return self._gib(parameters) if parameters.bounded else ANY

    @property
    def weights_gib_per_gpu(self) -> Interval:
        """Weights that one card holds."""
        weights, gpus = self.weights_gib, self.gpus_per_replica
        if not weights.bounded or not gpus.bounded:
            return ANY
        return weights.over(gpus)

    @property
    def weights_fit(self) -> bool | None:
        """Do the weights fit the cards with a tenth to spare for all else?"""
        per_gpu, memory = self.weights_gib_per_gpu, self.memory_gb
        if not per_gpu.bounded or not memory.bounded:
            return None
        return per_gpu.at_most(MEMORY_SPARE * memory.low * 1e9 / GIB)

    @property
    def decode_step_s(self) -> Interval:
        """One decode step of a small batch: the active weights read once from device memory.

        Bytes over bandwidth over the share of it that kernels reach; the key-value cache and
        all-reduces come on top, so a measured step may be longer, but hardly shorter.
        """
        active = self._evidence.number("model.active_params_b")
        weights = self._gib(active.value) if active.known else self.weights_gib
        card, gpus = self.gpu, self.gpus_per_replica
        if card is None or not weights.bounded or not gpus.bounded:
            return ANY
        bandwidth = exactly(card.bandwidth_gb_per_s * 1e9).times(gpus).times(BANDWIDTH_REACHED)
        return weights.times(exactly(GIB)).over(bandwidth)

    @property
    def decode_tokens_per_s(self) -> Interval:
        """Output of the present batch where reading the weights sets the pace, all requests.

        `requests_running` tokens a step; an upper bound, for the cache is read as well.
        """
        step, running = self.decode_step_s, self._evidence.number("requests_running").value
        if not step.bounded or not running.bounded or step.low <= 0:
            return ANY
        return running.over(step)

    @property
    def prefill_tokens_per_s(self) -> Interval:
        """Prompt tokens per second of one replica: two operations per active weight and token.

        At the rate of half precision; attention over long prompts comes on top.
        """
        stated = self._evidence.number("model.active_params_b")
        active = stated.value if stated.known else self.parameters_b
        card, gpus = self.gpu, self.gpus_per_replica
        if card is None or not active.bounded or not gpus.bounded or active.low <= 0:
            return ANY
        rate = exactly(card.half_tflops * 1e12).times(gpus).times(COMPUTE_REACHED)
        return rate.over(active.times(exactly(2e9)))

    @property
    def ridge_requests(self) -> Interval:
        """Tokens of a step from which on 16-bit weights are bound by compute and not by memory.

        Two operations and two bytes per weight: peak rate over bandwidth, whatever the model. It
        is lower where kernels reach more of the bandwidth than of the rate.
        """
        card = self.gpu
        if card is None:
            return ANY
        return exactly(card.half_tflops * 1e12 / (card.bandwidth_gb_per_s * 1e9))

    @property
    def kv_bytes_per_token(self) -> Interval:
        """Bytes of one token's keys and values, all layers, one copy; of known architectures."""
        model = self.architecture
        if model is None:
            return ANY
        per_number = _bytes_per_kv_number(self._evidence.text("kv_cache_dtype"))
        return per_number.times(exactly(float(model.layers * model.kv_elements)))

    @property
    def kv_capacity_tokens(self) -> Interval:
        """Tokens whose keys and values one replica could hold beside its weights.

        Of known architectures without sliding windows; heads that are fewer than the
        tensor-parallel cards, and the latent vector of MLA, are held several times.
        """
        model, per_token, gpus = self.architecture, self.kv_bytes_per_token, self.gpus_per_replica
        weights, memory = self.weights_gib, self.memory_gb
        if model is None or model.window_layers or not gpus.bounded or not memory.bounded:
            return ANY
        if not weights.bounded or gpus.low < 1:
            return ANY
        share = self._evidence.number("gpu_memory_utilization")
        used = share.value if share.known else Interval(0.85, 0.95)
        # 80 GB as sold are 80 GB or 80 GiB, by the maker.
        room = memory.times(Interval(1e9, GIB)).times(gpus).times(used)
        spare = room.minus(weights.times(exactly(GIB))).clipped(0.0, float("inf"))
        tensor = self._evidence.number("tensor_parallel_size").value
        copies = exactly(1.0)
        if tensor.bounded:
            heads = 1 if model.mla else model.kv_heads
            copies = tensor.over(exactly(float(heads))).clipped(1.0, max(tensor.high, 1.0))
        return spare.times(KV_SPARE).over(per_token.times(copies))

    @property
    def unquantised(self) -> bool | None:
        """Are the weights in 16 bits or more? None where nothing says so."""
        return is_unquantised(self._weight_words())

    def _gib(self, parameters_b: Interval) -> Interval:
        return parameters_b.times(exactly(1e9 / GIB)).times(bytes_per_weight(self._weight_words()))

    def _weight_words(self) -> str:
        return " ".join(
            word
            for key in ("model.dtype", "quantization", "model.name")
            if (word := self._evidence.text(key)) is not None
        )


def _bytes_per_kv_number(kind: str | None) -> Interval:
    """By the word of the cache's dtype; where none is said, 16 bits or 8."""
    if kind is None:
        return Interval(1.0, 2.0)
    if "8" in kind:
        return Interval(1.0, 1.1)
    return Interval(0.5, 0.65) if "4" in kind else exactly(2.0)
