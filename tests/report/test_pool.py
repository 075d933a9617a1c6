"""Figures drawn by other processes are those that would be drawn here, and whatever fails there is drawn here."""

from dataclasses import dataclass

import numpy as np
import pytest
from matplotlib.figure import Figure

from understudy.report import pool as artists
from understudy.report.figures import Dots, RecoveryRate
from understudy.report.pool import FigurePool, drawn, endings

RATES = np.array([[[1.0, 0.5, 0.0]]])
KINDS = [
    RecoveryRate(np.array([1.0]), np.array([5.0]), RATES / 2, RATES, 5, 100, 32),
    Dots(("2×", "5×"), np.ones((2, 3)), np.arange(6).reshape(2, 3), "students"),
]


@dataclass(frozen=True)
class Local:
    """Of a module that an artist cannot import, and moving."""

    def paper(self):
        return Figure()

    def page(self):
        return {}

    def film(self, path):
        path.write(b"moving")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_whoever_draws_the_files_are_the_same(count):
    with FigurePool(count) as hired:
        hired.begin(KINDS * 2)
        made = hired.finish()
    assert [list(each) for each in made] == [list(endings(kind)) for kind in KINDS * 2]
    assert made == [drawn(kind) for kind in KINDS * 2]


def test_what_an_artist_cannot_draw_is_drawn_here():
    with FigurePool(1) as hired:
        hired.begin([Local(), *KINDS])
        first, *_ = hired.finish()
    assert first["gif"] == b"moving"
    assert list(first) == ["pdf", "svg", "gif"] == list(endings(Local()))


def test_artists_that_do_not_come_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(artists, "_HELLO", "raise SystemExit(1)")
    with FigurePool(2) as hired:
        hired.begin(KINDS)
        assert len(hired.finish()) == len(KINDS)


def test_artists_go_when_they_are_no_longer_needed():
    with FigurePool(2) as hired:
        hired.begin([])
        assert hired.finish() == []
        there = list(hired._hired)
    assert all(artist.returncode is not None for artist in there)


def test_what_cannot_be_drawn_at_all_says_why():
    @dataclass(frozen=True)
    class Wrong(Local):
        def paper(self):
            raise ValueError("no such figure")

    with FigurePool(1) as hired, pytest.raises(ValueError, match="no such figure"):
        hired.begin([Wrong()])
        hired.finish()
