"""Benchmark of training speed: every number is a ratio of things timed in alternation within one run."""

from understudy.bench.goals import Goal as Goal
from understudy.bench.result import Bench as Bench
from understudy.bench.result import measure as measure
from understudy.bench.setting import Sizes as Sizes
