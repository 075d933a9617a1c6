"""How fast understudy trains on this machine, against what the machine can do: every number a ratio within one run."""

from understudy.bench.goals import Goal as Goal
from understudy.bench.result import Bench as Bench
from understudy.bench.result import measure as measure
from understudy.bench.setting import Sizes as Sizes
