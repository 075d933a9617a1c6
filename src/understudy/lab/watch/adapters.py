"""Callbacks that follow the trainings of Lightning and of Hugging Face's `Trainer`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import Tensor

from understudy._errors import UserError

if TYPE_CHECKING:
    from understudy.lab.watch.watching import Watch


def lightning_callback(watch: Watch) -> Any:
    """A callback for the `Trainer` of Lightning, from either of its packages.

    Raises:
        UserError: Neither is installed.
    """
    # Both packages may be installed: the callback must be of the one that is in use.
    name = "pytorch_lightning" if "lightning.pytorch" not in sys.modules and "pytorch_lightning" in sys.modules else ""
    package = _package(name or "lightning.pytorch", "Lightning", "lightning")

    class WatchCallback(package.Callback):  # type: ignore[misc, name-defined]
        """Counts the optimiser steps of a Lightning training."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            _require_step(watch, trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *rest: Any) -> None:
            if trainer.global_step > watch.steps:  # not while gradients are accumulated
                given = dict(outputs) if isinstance(outputs, Mapping) else {"loss": outputs}
                found = {k: v for k, v in given.items() if isinstance(v, Tensor) and v.numel() == 1}
                if "loss" in found:  # Lightning divides it
                    found["loss"] = found["loss"] * trainer.accumulate_grad_batches
                watch.step(**found)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            watch.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            watch.stop()

    return WatchCallback()


def transformers_callback(watch: Watch) -> Any:
    """A callback for the `Trainer` of transformers.

    Raises:
        UserError: transformers is not installed.
    """
    package = _package("transformers", "transformers", "transformers accelerate")
    logged: dict[str, float] = {}

    def count(state: Any) -> None:
        """Count a step once its loss is logged, which comes after the end of the step."""
        if state.global_step > watch.steps:
            watch.step(**logged)
            logged.clear()

    class WatchCallback(package.TrainerCallback):  # type: ignore[misc, name-defined]
        """Counts the optimiser steps of a Hugging Face training."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            _require_step(watch, state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            count(state)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            logged.update({k: v for k, v in (logs or {}).items() if k in ("loss", "eval_loss")})

        def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            count(state)
            watch.close()

    return WatchCallback()


def _package(module: str, name: str, install: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"{name} is not installed; install it with `pip install {install}`") from error


def _require_step(watch: Watch, step: int) -> None:
    """Refuse a training that continues at another step than the run."""
    if step != watch.steps:
        raise UserError(
            f"the training continues at step {step:,} and its run at step {watch.steps:,}; give us.watch resume={step}"
        )
