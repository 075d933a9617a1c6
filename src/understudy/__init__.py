"""understudy, a laboratory for teacher-student learning.

Its packages are imported when they are first used, so that `import understudy` is cheap and torch is loaded only
by what needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understudy import data as data
    from understudy import measures as measures
    from understudy import nets as nets
    from understudy import students as students
    from understudy import teachers as teachers
    from understudy._errors import UserError as UserError
    from understudy.lab.align import align as align
    from understudy.lab.check_runs import check as check
    from understudy.lab.claims_table import claims as claims
    from understudy.lab.example import example as example
    from understudy.lab.predict import predict as predict
    from understudy.lab.reproduce import reproduce as reproduce
    from understudy.lab.run import run as run
    from understudy.lab.sweep import sweep as sweep
    from understudy.lab.train import train as train
    from understudy.lab.watch import watch as watch
    from understudy.measures.information import information as information
    from understudy.nets import Population as Population
    from understudy.nets import from_module as from_module
    from understudy.nets import load as load
    from understudy.nets import save as save
    from understudy.nets.latent.model import LatentModel as LatentModel
    from understudy.nets.multi_exit.exits import exits as exits
    from understudy.nets.multi_exit.msdnet import MSDNet as MSDNet
    from understudy.papers.equivalence.compare import compare as compare
    from understudy.papers.equivalence.fold_sets import folds as folds
    from understudy.papers.equivalence.recover import recover as recover
    from understudy.papers.local.theory.start_and_descend import start as start
    from understudy.papers.specialization.connect import connect as connect
    from understudy.papers.specialization.prune import prune as prune
    from understudy.store import Run as Run
    from understudy.training import GD as GD
    from understudy.training import SGD as SGD
    from understudy.training import Adam as Adam
    from understudy.training import CrossEntropy as CrossEntropy
    from understudy.training import Logistic as Logistic
    from understudy.training import SquaredError as SquaredError
    from understudy.training.latent.mutual_autoencoder import MutualAutoencoder as MutualAutoencoder
    from understudy.training.latent.objective import CodeObjective as CodeObjective
    from understudy.training.multi_exit.objectives import ExitObjective as ExitObjective

__version__ = "0.2.0.dev0"

_ROOMS = (
    "bench",
    "claims",
    "data",
    "lab",
    "measures",
    "nets",
    "papers",
    "report",
    "store",
    "students",
    "teachers",
    "theory",
    "training",
)
_NAMES = {
    "Population": "nets",
    "from_module": "nets",
    "load": "nets",
    "save": "nets",
    "LatentModel": "nets.latent.model",
    "MSDNet": "nets.multi_exit.msdnet",
    "exits": "nets.multi_exit.exits",
    "information": "measures.information",
    "Run": "store",
    "UserError": "_errors",
    "align": "lab.align",
    "check": "lab.check_runs",
    "example": "lab.example",
    "predict": "lab.predict",
    "reproduce": "lab.reproduce",
    "run": "lab.run",
    "sweep": "lab.sweep",
    "watch": "lab.watch",
    "folds": "papers.equivalence.fold_sets",
    "recover": "papers.equivalence.recover",
    "start": "papers.local.theory.start_and_descend",
    "prune": "papers.specialization.prune",
    "connect": "papers.specialization.connect",
    "compare": "papers.equivalence.compare",
    "train": "lab.train",
    "SGD": "training",
    "GD": "training",
    "Adam": "training",
    "SquaredError": "training",
    "CrossEntropy": "training",
    "Logistic": "training",
    "CodeObjective": "training.latent.objective",
    "MutualAutoencoder": "training.latent.mutual_autoencoder",
    "ExitObjective": "training.multi_exit.objectives",
}
__all__ = ["__version__", "claims", "data", "measures", "nets", "students", "teachers", *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"understudy.{_NAMES[name]}"), name)
    if name in _ROOMS:
        return import_module(f"understudy.{name}")
    raise AttributeError(f"module 'understudy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
