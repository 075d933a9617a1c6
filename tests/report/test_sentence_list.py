"""Lists of sentences beyond the contract of figures: bold words, texts of any kind, and what paper shows."""

import pytest
from matplotlib.text import Text

from understudy.report.figures import SentenceList

LINES = (
    (("the film is good", "a film"), ("very <b>bad</b> $x_1$", "very bad")),
    (("the plot is good", "the film"), ("日本 bad", "not bad & dull")),
)
GIVEN = ("the film is good .", "very bad")


def sentences(**options):
    given = {"settings": ("0", "5"), "headings": GIVEN, "names": ("mean", "drawn"), "lines": LINES, "note": "seed 1"}
    return SentenceList(**(given | {"prefix": "M = "} | options))


def on_paper(kind):
    return [text.get_text() for text in kind.paper().findobj(Text) if text.get_text()]


class TestSentenceList:
    def test_words_at_their_place_are_bold(self):
        page = sentences(like=GIVEN).page()
        first = page["data"][2]["text"]
        assert first[0] == "<b>the</b> <b>film</b> <b>is</b> <b>good</b>"
        assert first[1] == "a <b>film</b>"
        assert page["frames"][-1]["data"][0]["text"][0] == "<b>the</b> plot <b>is</b> <b>good</b>"
        assert "<b>" not in sentences().page()["data"][2]["text"][0]

    def test_text_is_no_markup(self):
        page = sentences(like=GIVEN, headings=("<i>a</i> & b", "c")).page()
        assert page["data"][2]["text"][2] == "<b>very</b> &lt;b&gt;bad&lt;/b&gt; $x_1$"
        assert page["data"][0]["text"][0] == "&lt;i&gt;a&lt;/i&gt; &amp; b"
        assert (
            sentences(like=("", "so bad &")).page()["frames"][-1]["data"][0]["text"][3]
            == "not <b>bad</b> <b>&amp;</b> dull"
        )
        assert page["frames"][-1]["data"][0]["text"][3] == "not <b>bad</b> &amp; dull"
        drawn = sentences(blocks_on_paper=2).paper().findobj(Text)
        assert all(not text.get_parse_math() for text in drawn if "$" in text.get_text())

    def test_paper_has_the_blocks_and_settings_that_were_chosen(self):
        shown = on_paper(sentences())
        assert "the film is good" in shown and "the plot is good" in shown and "very bad" not in shown
        shown = on_paper(sentences(blocks_on_paper=2, settings_on_paper=(1,)))
        assert "the film is good" not in shown and "not bad & dull" in shown
        assert "□□ bad" in shown  # the font for paper does not have these characters

    def test_lines_that_are_too_long_are_shortened_on_paper_only(self):
        long = "word " * 60
        kind = sentences(lines=(((long, "b"), ("c", "d")), LINES[1]))
        (short,) = (text for text in on_paper(kind) if text.startswith("word"))
        assert short.endswith("…") and len(short) < len(long)
        assert kind.page()["data"][2]["text"][0] == long

    def test_one_setting_needs_no_slider(self):
        assert "sliders" not in sentences(settings=("5",), lines=LINES[1:]).page()["layout"]
        slider = sentences().page()["layout"]["sliders"][0]
        assert [step["label"] for step in slider["steps"]] == ["0", "5"]
        assert slider["currentvalue"]["prefix"] == "M = "

    @pytest.mark.parametrize(
        "wrong", [{"settings": ("0",)}, {"headings": ("a",)}, {"names": ("mean",)}, {"like": ("the film",)}]
    )
    def test_lines_must_fit_settings_blocks_and_names(self, wrong):
        with pytest.raises(ValueError, match="SentenceList must have"):
            sentences(**wrong)
