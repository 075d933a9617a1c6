"""What a claim of a paper is, the few ways to decide one, and the record of what full runs measured.

The decided claim itself, `Claim`, belongs to the store, which reads it back from a run folder. The package is callable:
`us.claims(study="two-layer")` is the function of the command `understudy claims`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from understudy._numbers import number as number
from understudy.claims.decide import Claims as Claims
from understudy.claims.verdict import Verdict as Verdict
from understudy.claims.verdict import every as every
from understudy.claims.verdict import mean_above as mean_above
from understudy.claims.verdict import median as median
from understudy.claims.verdict import ordered as ordered
from understudy.claims.verdict import range_words as range_words
from understudy.claims.verdict import share as share
from understudy.claims.verdict import within as within
from understudy.store.claims import Claim as Claim
from understudy.store.claims import Variant as Variant


class _CallableModule(ModuleType):
    """The package, which has the name of the function that lists claims."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        # By name: the lab, which knows runs and studies, imports this package.
        return import_module("understudy.lab.claims_table").claims(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
