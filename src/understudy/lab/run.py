"""`us.run`: run a study from Python, as `understudy run` does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy._errors import UserError, suggest
from understudy.lab.discovery import load_file, studies
from understudy.lab.execute import execute
from understudy.lab.options import converted
from understudy.lab.study import Study
from understudy.report.terminal.progress import Silent
from understudy.report.terminal.tables import LiveDisplay
from understudy.store import Run


def run(
    study: str | os.PathLike[str] | type[Study] | Study,
    *,
    quick: bool = False,
    out: str | os.PathLike[str] = "runs",
    progress: bool = True,
    cluster: str = "",
    **options: Any,
) -> Run:
    """Run a study, or resume it where it stopped; a finished run is only read.

    Example:
        >>> run = us.run("two-layer", quick=True, seeds=2)
        >>> run.array("eval_loss", "multiple seed epoch")

    Args:
        study: Name of a study as `understudy list` prints it, a Python file that defines one, or a study itself.
        quick: Use small defaults that finish in seconds; options still take precedence.
        out: Folder that contains the runs; this one is written to `out/<study>/<hash of its configuration>`.
        progress: Show the progress on standard error.
        cluster: Compute on a cluster: `ray` for the one that is known here, or else one of this machine alone;
            `ray:ADDRESS` for the one at an address.
        **options: Options of the study, as `understudy run STUDY --help` lists them, with `_` for `-`. Where an option
            takes several values, any sequence of them, or one value.

    Returns:
        The finished run.

    Raises:
        UserError: An unknown study or option, or a value that is not allowed.
    """
    chosen = configured(study, quick, options)
    with LiveDisplay(chosen.command()) if progress else nullcontext(Silent()) as watch:
        return execute(chosen, Path(out), watch, cluster)


def configured(
    study: str | os.PathLike[str] | type[Study] | Study, quick: bool = False, options: Mapping[str, Any] | None = None
) -> Study:
    """The study with these options; those not given have their default or, with `quick`, their small default.

    Raises:
        UserError: An unknown study or option, a value that is not allowed, or `quick` for a study that has its options.
    """
    if isinstance(study, Study):
        if quick:
            raise UserError("quick does not apply to a study that has its options already; give its name or its class")
        default: Study = study
    else:
        kind = study if isinstance(study, type) else find_study(os.fspath(study))
        default = kind.quick() if quick else kind()
    former = type(default).renamed
    named = {former.get(name, name): value for name, value in (options or {}).items()}
    return replace(default, **converted(type(default), named))


def find_study(name: str) -> type[Study]:
    """The study of this name: one of the papers', or one defined in the user's file.

    Raises:
        UserError: There is no such study.
    """
    known = studies()
    if name in known:
        return known[name]
    if name.endswith(".py") or Path(name).is_file():
        return load_file(Path(name))
    raise UserError(f"there is no study {name!r}; {suggest(name, list(known))}studies are {', '.join(known)}")
