"""What would decide the claims that a run leaves open."""

from understudy.lab.undecided_claims import undecided
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.store import Claim


def decided(id: str) -> Claim:
    return Claim(id=id, part="", statement="", paper="", measured="", n=1, holds=True)


def test_a_quick_run_names_seeds_epochs_and_command():
    words = undecided(TwoLayer.quick(), [])
    assert "32 seeds" in words and "100 epochs" in words
    assert "T1, T2, T3, T5 and T6 need " in words and ": run understudy run two-layer." in words
    assert "run understudy run two-layer --teacher-nodes 20 --input-std 10." in words
    assert "run understudy run two-layer --teacher-nodes 10 --polarity 0 1 2." in words


def test_only_open_claims_are_named():
    words = undecided(TwoLayer(), [decided(id) for id in ("T1", "T2", "T3", "T5", "T6")])
    assert (
        "T1" not in words.replace("T10", "").replace("T11", "")
        and "T4 is decided by other settings: run understudy run two-layer" in words
    )
    assert undecided(TwoLayer(), [decided(id) for id in TwoLayer.decides.split()]) == ""


def test_a_study_without_claims_leaves_nothing_open():
    assert undecided(SecondDraw(), []) == ""
