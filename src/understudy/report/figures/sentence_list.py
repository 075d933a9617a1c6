"""Sentences that networks write, setting by setting: a slider on the page, a list on paper."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from understudy._numbers import typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages

_ROW, _LEFT, _BODY, _SMALLER = 21, 78, 7.6, 6.6
"""Pixels of a screen that a line takes, the names of lines, and a letter of a line and of a heading."""
_GAP = "\N{EN SPACE}"
"""What stands between the name of a line and the line."""
_LINE, _LETTER, _EDGE = 0.138, 0.064, 0.06
"""Inches on paper of a line, of a letter, and of the space at both sides."""
_MISSING = "□"
"""What stands on paper for a character that the font does not have."""


@dataclass(frozen=True, eq=False)
class SentenceList:
    """Blocks of sentences under headings, the same blocks for every setting.

    Sentences and headings are shown as they are: nothing in them is markup or mathematics.
    """

    settings: tuple[str, ...]
    """Names of the settings, in the order of the slider."""
    headings: tuple[str, ...]
    """What each block is about, such as the sentence that was given."""
    names: tuple[str, ...]
    """What each line of a block is, in one word."""
    lines: tuple[tuple[tuple[str, ...], ...], ...]
    """Sentences [setting][block][line]."""
    note: str
    """Text below, such as the number of networks."""
    like: tuple[str, ...] = ()
    """A sentence for each block: on the page, words that agree with its word at the same place are bold."""
    prefix: str = ""
    """What is written before the name of the setting that is shown."""
    blocks_on_paper: int = 1
    """Blocks that are shown on paper, the first ones."""
    settings_on_paper: tuple[int, ...] | None = None
    """Settings that are shown on paper; by default all."""

    def __post_init__(self) -> None:
        typeset_fields(self, "settings", "names", "note", "prefix")
        shapes = {len(block) for setting in self.lines for block in setting} | {len(self.names)}
        blocks = {len(setting) for setting in self.lines} | {len(self.headings)}
        if len(self.lines) != len(self.settings) or len(shapes) > 1 or len(blocks) > 1:
            raise ValueError("SentenceList must have lines for every setting, block and name")
        if self.like and len(self.like) != len(self.headings):
            raise ValueError(f"SentenceList must have one sentence per block in like, got {len(self.like)}")

    def paper(self) -> Figure:
        """Draw the figure for paper: under each heading the lines of every setting."""
        shown = range(len(self.settings)) if self.settings_on_paper is None else self.settings_on_paper
        rows: list[tuple[str, str, str]] = []  # what stands at the left, what at the right, and a colour
        most = int(style.HIGHEST / _LINE) - 2
        for block, heading in enumerate(self.headings[: self.blocks_on_paper]):
            rows.append(("", heading, style.SOFT))
            for setting in shown:
                names = (f"{self.prefix}{self.settings[setting]}", *[""] * len(self.names))
                rows += [(name, line, style.INK) for name, line in zip(names, self.lines[setting][block], strict=False)]
        rows = rows[:most]
        left = _EDGE + _LETTER * (2 + max(len(name) for name, _, _ in rows))
        longest = max(len(line) for _, line, _ in rows)
        width = style.NARROW if left + longest * _LETTER <= style.NARROW - _EDGE else style.WIDE
        letters = int((width - left - _EDGE) / _LETTER)
        with style.paper():
            figure = Figure(figsize=(width, _LINE * (len(rows) + 2)))
            for place, (name, line, colour) in enumerate(rows):
                y = 1 - (place + 0.8) / (len(rows) + 2)
                how: dict[str, Any] = {"fontsize": style.SMALL, "color": colour, "va": "center", "parse_math": False}
                figure.text(_EDGE / width, y, name, **how)
                figure.text(left / width, y, _printable(_shortened(line, letters)), **how)
            note: dict[str, Any] = {"fontsize": style.SMALL, "color": style.SOFT, "va": "center", "ha": "right"}
            figure.text(1 - _EDGE / width, 0.8 / (len(rows) + 2), self.note, **note)
            return figure

    def page(self) -> pages.JSON:
        """Traces and layout for the page, with a slider over the settings."""
        each = len(self.names)
        tops = [block * (each + 1.6) for block in range(len(self.headings))]
        places = [top + 1 + line for top in tops for line in range(each)]
        rows = len(self.headings) * (each + 1.6)
        grey = {"textfont": {"color": style.HAIRLINE, "size": 12}, "hoverinfo": "skip", "cliponaxis": False}
        headings = [html.escape(heading, quote=False) for heading in self.headings]
        frames = [[{"text": self._marked(setting)}] for setting in range(len(self.settings))]
        data = [
            pages.scatter(0, [0.0] * len(tops), tops, "text", text=headings, textposition="middle right", **grey),
            pages.scatter(
                0,
                [0.0] * len(places),
                places,
                "text",
                text=[name + _GAP for name in self.names] * len(tops),
                textposition="middle left",
                **grey,
            ),
            pages.scatter(
                0,
                [0.0] * len(places),
                places,
                "text",
                textposition="middle right",
                textfont={"size": 14},
                hoverinfo="skip",
                cliponaxis=False,
                **frames[0][0],
            ),
        ]
        hidden = {"showticklabels": False, "ticks": "", "showline": False, "fixedrange": True}
        layout = pages.layout(
            [""],
            1,
            x={**hidden, "range": [0, 1]},
            y={**hidden, "range": [rows - 0.4, -0.8]},
            note=html.escape(self.note, quote=False),
            row_height=max(190, round(_ROW * rows)),
            shared=False,
            legend=False,
            below=80 if len(self.settings) > 1 else 0,
        )
        letters = max((len(line) for setting in self.lines for block in setting for line in block), default=0)
        widest = max(_BODY * letters, _SMALLER * max(map(len, self.headings), default=0))
        layout["margin"]["l"] = _LEFT
        layout["meta"] = {"minWidth": int(min(960, max(360, _LEFT + widest + 30)))}
        page: pages.JSON = {"data": data, "layout": layout}
        return pages.animated(page, self.settings, frames, self.prefix, first=2)

    def _marked(self, setting: int) -> list[str]:
        """Lines of a setting, in HTML; agreeing words are bold."""
        marked = []
        for block, lines in enumerate(self.lines[setting]):
            like = self.like[block].split(" ") if self.like else []
            marked += [_mark(line.split(" "), like) for line in lines]
        return marked


def _mark(words: Sequence[str], like: Sequence[str]) -> str:
    escaped = [html.escape(word, quote=False) for word in words]
    return " ".join(
        f"<b>{word}</b>" if word and place < len(like) and words[place] == like[place] else word
        for place, word in enumerate(escaped)
    )


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


@cache
def _characters() -> frozenset[int]:
    """Characters that the font for paper has."""
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def _printable(text: str) -> str:
    return "".join(c if ord(c) in _characters() else _MISSING for c in text)
