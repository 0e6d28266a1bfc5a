"""All rules, family by family."""

from __future__ import annotations

from mileage.doctor.rule import Rule
from mileage.doctor.rules.autoscale import RULES as AUTOSCALE
from mileage.doctor.rules.autoscale_down import RULES as AUTOSCALE_DOWN
from mileage.doctor.rules.autoscale_overshoot import RULES as AUTOSCALE_OVERSHOOT
from mileage.doctor.rules.batching import RULES as BATCHING
from mileage.doctor.rules.batching_advice import RULES as BATCHING_ADVICE
from mileage.doctor.rules.capacity import RULES as CAPACITY
from mileage.doctor.rules.client import RULES as CLIENT
from mileage.doctor.rules.contention import RULES as CONTENTION
from mileage.doctor.rules.device_metrics import RULES as DEVICE_METRICS
from mileage.doctor.rules.host_cpu import RULES as HOST_CPU
from mileage.doctor.rules.host_ensemble import RULES as HOST_ENSEMBLE
from mileage.doctor.rules.host_frontend import RULES as HOST_FRONTEND
from mileage.doctor.rules.host_graphs import RULES as HOST_GRAPHS
from mileage.doctor.rules.host_memory import RULES as HOST_MEMORY
from mileage.doctor.rules.host_output import RULES as HOST_OUTPUT
from mileage.doctor.rules.host_step import RULES as HOST_STEP
from mileage.doctor.rules.interconnect import RULES as INTERCONNECT
from mileage.doctor.rules.keda import RULES as KEDA
from mileage.doctor.rules.kv_copies import RULES as KV_COPIES
from mileage.doctor.rules.kv_memory import RULES as KV_MEMORY
from mileage.doctor.rules.kv_reservation import RULES as KV_RESERVATION
from mileage.doctor.rules.load_generator import RULES as LOAD_GENERATOR
from mileage.doctor.rules.lora import RULES as LORA
from mileage.doctor.rules.memory_budget import RULES as MEMORY_BUDGET
from mileage.doctor.rules.merging import RULES as MERGING
from mileage.doctor.rules.metering import RULES as METERING
from mileage.doctor.rules.multimodal import RULES as MULTIMODAL
from mileage.doctor.rules.observing import RULES as OBSERVING
from mileage.doctor.rules.parallel import RULES as PARALLEL
from mileage.doctor.rules.prefix import RULES as PREFIX
from mileage.doctor.rules.prefix_content import RULES as PREFIX_CONTENT
from mileage.doctor.rules.proxy import RULES as PROXY
from mileage.doctor.rules.quantisation import RULES as QUANTISATION
from mileage.doctor.rules.routing import RULES as ROUTING
from mileage.doctor.rules.sampling import RULES as SAMPLING
from mileage.doctor.rules.sharing import RULES as SHARING
from mileage.doctor.rules.sharing_advice import RULES as SHARING_ADVICE
from mileage.doctor.rules.speculation import RULES as SPECULATION
from mileage.doctor.rules.startup import RULES as STARTUP
from mileage.doctor.rules.startup_kernels import RULES as STARTUP_KERNELS
from mileage.doctor.rules.startup_killed import RULES as STARTUP_KILLED
from mileage.doctor.rules.tenants import RULES as TENANTS
from mileage.doctor.rules.thermal import RULES as THERMAL
from mileage.doctor.rules.validity import RULES as VALIDITY
from mileage.doctor.rules.warm_up import RULES as WARM_UP
from mileage.doctor.rules.weight_memory import RULES as WEIGHT_MEMORY

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    *HOST_STEP,
    *HOST_GRAPHS,
    *HOST_CPU,
    *CONTENTION,
    *HOST_FRONTEND,
    *HOST_OUTPUT,
    *HOST_ENSEMBLE,
    *HOST_MEMORY,
    *SAMPLING,
    *BATCHING,
    *BATCHING_ADVICE,
    *SPECULATION,
    *KV_MEMORY,
    *KV_RESERVATION,
    *MEMORY_BUDGET,
    *PREFIX,
    *PREFIX_CONTENT,
    *ROUTING,
    *PARALLEL,
    *KV_COPIES,
    *INTERCONNECT,
    *QUANTISATION,
    *WEIGHT_MEMORY,
    *STARTUP,
    *STARTUP_KERNELS,
    *STARTUP_KILLED,
    *WARM_UP,
    *LORA,
    *TENANTS,
    *MULTIMODAL,
    *CLIENT,
    *LOAD_GENERATOR,
    *PROXY,
    *MERGING,
    *AUTOSCALE,
    *AUTOSCALE_OVERSHOOT,
    *AUTOSCALE_DOWN,
    *KEDA,
    *METERING,
    *DEVICE_METRICS,
    *OBSERVING,
    *SHARING,
    *SHARING_ADVICE,
    *THERMAL,
    *VALIDITY,
    *CAPACITY,
)
"""Every rule, in the order of the families."""
