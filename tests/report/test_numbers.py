"""Numbers are written in one way wherever people read them."""

import re

import pytest

from support.made import computed_run
from understudy._numbers import number, typeset
from understudy.claims import Claim, Variant, range_words
from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.monotonicity.study import Monotonicity
from understudy.papers.local.warm_up.study import WarmUp
from understudy.report.figures import Curves
from understudy.report.story import Number

STUDIES = (
    WarmUp(),
    DataGeometry(seeds=40, dim=50, inputs=4, kappa=(2.0, 0.5, 1.0)),
    Monotonicity(seeds=2, steps=50),
)
PLAIN = re.compile(r"\de[-+−]\d|(?<![\w.)-])-\.?\d")
"""Numbers as Python writes them, with a hyphen or an exponent after e."""


@pytest.mark.parametrize(
    ("value", "spec", "shown"),
    [(99.7, ".2g", "100"), (-123, ".2g", "−120"), (99.7, ".3g", "99.7"), (1234, ".2g", "1.2×10³"), (100, ".0e", "10²")],
)
def test_hundreds_are_written_out(value, spec, shown):
    assert number(value, spec) == shown


def test_a_range_of_percents_ends_at_100():
    assert f"{range_words([98.9, 99.8], '.2g')}%" == "99 to 100%"


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("-0.3", "−0.3"),
        ("from -1 to 1", "from −1 to 1"),
        ("t^-0.50", "t^−0.50"),
        ("2.0e-05", "2.0×10⁻⁵"),
        ("-2.5e-07", "−2.5×10⁻⁷"),
        ("1.2e+05 samples", "1.2×10⁵ samples"),
        ("within 1e-06%", "within 10⁻⁶%"),
        ("1e−12", "10⁻¹²"),
        ("0.00e+00", "0.00"),
        ("4.07e+00", "4.07"),
        ("12,345", "12,345"),
        ("repeat with --lr 1e-06 1e-05, not -1e-06", "repeat with --lr 1e-06 1e-05, not −10⁻⁶"),
        ("CIFAR-10, 20-30 nodes, commit 7e7cfc6, --seeds", "CIFAR-10, 20-30 nodes, commit 7e7cfc6, --seeds"),
    ],
)
def test_numbers_of_a_text_are_typeset_and_all_else_stays(plain, shown):
    assert typeset(plain) == shown == typeset(shown)


def test_a_number_takes_a_format():
    assert [number(-0.25), number(-3.25e-7), number(3.2e-7, ".1e"), number(12345.6, ",.0f")] == [
        "−0.25",
        "−3.25×10⁻⁷",
        "3.2×10⁻⁷",
        "12,346",
    ]


def test_words_of_claims_and_tiles_are_typeset():
    variant = Variant("started at 1e-06", "-0.5", True)
    claim = Claim(id="T1", statement="below 1e-06", paper="-1", measured="-2e-7", n=1, holds=True, variants=(variant,))
    assert (claim.statement, claim.paper, claim.measured) == ("below 10⁻⁶", "−1", "−2×10⁻⁷")
    assert str(variant) == "started at 10⁻⁶: −0.5 (holds)"
    assert Number("3.1e-5", "rate 1e-05") == Number("3.1×10⁻⁵", "rate 10⁻⁵")


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_headlines_tiles_captions_and_claims_have_no_plain_exponents_and_hyphens(study):
    run = computed_run(study)
    story = study.story(run)
    texts = [story.headline, *(text for tile in story.numbers for text in (tile.value, tile.label))]
    for figure in story.figures:
        texts += [figure.title, figure.caption]
        if isinstance(figure.kind, Curves):
            texts += [text for panel in figure.kind.panels for text in (panel.title, *(s.label for s in panel.series))]
    for claim in study.claims(run):
        texts += [claim.part, claim.statement, claim.paper, claim.measured, *map(str, claim.variants)]
    assert len(texts) > 10
    assert not [text for text in texts if PLAIN.search(text)]
