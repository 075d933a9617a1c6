"""Numbers of the thesis' tables (Phuong 2021, tables 6.2, 6.4, E.1, E.2), exit by exit."""

from __future__ import annotations

from typing import NamedTuple

LOSSES = EXIT_WISE, DISTILLATION, SEMI_SUPERVISED = "exit-wise", "distillation", "semi-supervised"
"""Losses, as the study names them."""
IMAGES = 150, 250, 350, 500
"""Images per class, those for model selection included; with 500 there are none left for semi-supervised learning."""


class Published(NamedTuple):
    """A number of a table and its uncertainty: 1.96 standard errors of accuracies, standard deviation of times."""

    value: float
    spread: float


def _read(table: str) -> list[tuple[Published, ...]]:
    """Columns of a table whose rows are exits."""
    rows = [list(map(float, line.split())) for line in table.strip().splitlines()]
    return [tuple(Published(*row[i : i + 2]) for row in rows) for i in range(0, len(rows[0]), 2)]


_TRAINED = [(images, loss) for images in IMAGES for loss in LOSSES if (images, loss) != (500, SEMI_SUPERVISED)]
_TIMED = [(device, mode) for device in ("cpu", "cuda") for mode in ("budget", "anytime")]

BUDGET = dict(
    zip(
        _TRAINED,
        _read("""
    72.4 1.3  78.7 0.4  79.9 0.4  80.6 0.4  85.6 0.2  86.5 0.3  84.5 0.3  88.1 0.3  88.5 0.3  87.5 0.3  90.0 0.2
    75.5 0.7  80.5 0.3  81.1 0.4  83.4 0.3  87.5 0.2  88.2 0.3  87.2 0.3  90.1 0.2  90.4 0.2  89.8 0.1  92.0 0.2
    77.4 0.6  80.9 0.4  81.0 0.5  84.9 0.3  88.4 0.2  88.5 0.2  88.8 0.2  91.1 0.3  91.2 0.2  91.2 0.1  92.9 0.2
    78.4 0.4  81.2 0.4  81.0 0.5  86.0 0.3  88.6 0.2  88.7 0.2  89.6 0.2  91.3 0.3  91.5 0.2  91.8 0.2  93.1 0.1
    79.2 0.3  81.2 0.4  81.0 0.5  86.8 0.2  88.8 0.3  88.7 0.2  90.1 0.2  91.4 0.3  91.5 0.1  92.3 0.1  93.1 0.2
    79.8 0.2  81.2 0.4  81.0 0.5  87.4 0.2  88.8 0.3  88.7 0.2  90.5 0.3  91.5 0.4  91.5 0.2  92.6 0.1  93.1 0.2
    80.1 0.4  81.1 0.3  81.0 0.5  87.6 0.3  88.8 0.3  88.7 0.2  90.7 0.2  91.5 0.4  91.5 0.2  92.9 0.1  93.1 0.2
    80.3 0.4  81.1 0.3  81.0 0.5  87.9 0.3  88.8 0.3  88.7 0.2  90.8 0.2  91.5 0.4  91.5 0.2  93.0 0.1  93.1 0.2
    80.3 0.5  81.1 0.3  81.0 0.5  88.0 0.3  88.8 0.3  88.7 0.2  90.8 0.2  91.5 0.4  91.5 0.2  93.1 0.1  93.1 0.2
    80.4 0.5  81.1 0.3  81.0 0.5  88.0 0.3  88.8 0.3  88.7 0.2  90.8 0.3  91.5 0.4  91.5 0.2  93.1 0.2  93.1 0.2
    80.3 0.5  81.1 0.3  81.0 0.5  87.9 0.3  88.8 0.3  88.7 0.2  90.8 0.2  91.5 0.4  91.5 0.2  93.1 0.2  93.1 0.2
    """),
        strict=True,
    )
)
"""Top-5 accuracy in % for each budget, by images per class and loss (table 6.2)."""

ANYTIME = dict(
    zip(
        _TRAINED,
        _read("""
    72.4 1.3  78.7 0.4  79.9 0.4  80.6 0.4  85.6 0.2  86.5 0.3  84.5 0.3  88.1 0.3  88.5 0.3  87.5 0.3  90.0 0.2
    75.8 0.9  80.8 0.3  81.5 0.4  83.7 0.3  87.6 0.2  88.3 0.3  87.5 0.2  90.0 0.2  90.4 0.2  90.0 0.1  91.9 0.2
    77.9 0.8  81.8 0.3  82.1 0.4  85.5 0.2  88.7 0.2  89.1 0.2  89.1 0.2  91.2 0.2  91.4 0.2  91.4 0.1  92.9 0.1
    79.1 0.7  82.3 0.3  82.3 0.4  86.4 0.2  89.2 0.2  89.4 0.2  90.0 0.2  91.6 0.2  91.8 0.2  92.2 0.1  93.4 0.1
    80.0 0.6  82.7 0.3  82.3 0.4  87.2 0.2  89.5 0.2  89.6 0.2  90.5 0.2  91.8 0.3  92.1 0.2  92.7 0.1  93.6 0.1
    80.7 0.5  82.8 0.4  82.3 0.4  87.8 0.2  89.6 0.2  89.7 0.2  91.0 0.1  92.0 0.3  92.2 0.1  93.1 0.1  93.7 0.1
    81.2 0.4  82.9 0.4  82.3 0.4  88.3 0.2  89.8 0.2  89.8 0.2  91.3 0.1  92.1 0.2  92.3 0.2  93.4 0.1  93.8 0.1
    81.6 0.4  82.9 0.4  82.3 0.4  88.7 0.2  89.8 0.2  89.8 0.2  91.5 0.1  92.1 0.3  92.3 0.2  93.6 0.1  93.8 0.1
    81.9 0.3  82.9 0.3  82.2 0.4  88.9 0.2  89.9 0.2  89.8 0.2  91.7 0.1  92.1 0.3  92.3 0.2  93.7 0.1  93.8 0.1
    82.1 0.3  82.9 0.4  82.2 0.5  89.1 0.2  89.9 0.2  89.8 0.2  91.8 0.1  92.2 0.3  92.3 0.2  93.8 0.1  93.9 0.1
    82.2 0.3  82.8 0.3  82.1 0.5  89.1 0.2  89.8 0.2  89.8 0.2  91.9 0.1  92.2 0.2  92.3 0.2  93.9 0.1  93.9 0.1
    """),
        strict=True,
    )
)
"""Top-5 accuracy in % of the ensemble of the first exits, by images per class and loss (table 6.4)."""

CIFAR_TIMES = dict(
    zip(
        _TIMED,
        _read("""
     24 22   26 29   7 0   7 0
     34 29   43 37  11 0  11 0
     43 30   62 40  15 0  15 0
     51 35   81 49  18 0  19 0
     62 41   99 55  22 1  23 1
     67 34  121 64  25 1  27 1
     71 46  139 66  29 1  32 1
     85 35  164 78  32 1  35 1
     93 35  169 85  36 1  39 1
    103 40  196 78  39 1  43 1
    105 38  219 85  41 1  45 1
    """),
        strict=True,
    )
)
"""Time in ms until each exit of the network for CIFAR-100, by device and mode, over 1,000 runs (table E.1)."""

IMAGENET_TIMES = dict(
    zip(
        _TIMED,
        _read("""
     159 48   229 79  27 1  27 2
     339 99   373 94  38 1  38 1
    471 131  519 118  48 1  48 2
    559 138  647 117  55 1  56 1
    665 125  703 145  57 1  59 1
    """),
        strict=True,
    )
)
"""Time in ms until each exit of the network for ImageNet (table E.2)."""
