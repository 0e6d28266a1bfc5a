"""Mileage's scheduler class for vLLM, opt-in, for an order of prompts other than as they come.

`--scheduler-cls mileage.vllm_plugin.scheduler_class.make_scheduler`. vLLM's own scheduler, with its
planning and its books, does all the work. What this class adds is that a long prompt in the middle
can be left out of a step for those that are to come before it (`PromptOrder`), which no value that
is set from outside can do. vLLM says that the interface of such classes is not public: all other
policies work without it.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from mileage.vllm_plugin.prompt_order import PromptOrder

__all__ = ["ORDER_ATTRIBUTE", "make_scheduler", "ordered"]

ORDER_ATTRIBUTE: Final = "mileage_order"
"""Of a scheduler of this class: the `PromptOrder` in force; None: as they come."""


def make_scheduler(*args: Any, **kwargs: Any) -> Any:
    """A scheduler for the engine: vLLM calls it with what it gives to its own ones.

    With asynchronous scheduling it is built upon vLLM's asynchronous scheduler.
    """
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    if config.scheduler_config.async_scheduling:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Base
    else:
        from vllm.v1.core.sched.scheduler import Scheduler as Base
    return ordered(Base)(*args, **kwargs)


@functools.cache
def ordered(base: type) -> Any:
    """The class of schedulers that leave prompts out of the steps of a `base`."""

    class OrderedScheduler(base):  # type: ignore[misc]
        """See `make_scheduler`."""

        mileage_order: PromptOrder | None = None

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            """Plan a step without those that are held in it."""
            order, output = self.mileage_order, None
            if order is None:
                return super().schedule(*args, **kwargs)
            order.hide(self)
            try:
                output = super().schedule(*args, **kwargs)
            finally:
                order.show(self, output)
            return output

    return OrderedScheduler
