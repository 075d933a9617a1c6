"""The study `movie-sentences`: its claims on made runs, its report and its runs, and wrong options and files."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.code_runs import Interrupting, compute_run, pages, same_runs
from support.commands import ENVIRONMENT, understudy
from support.runs import run_of
from understudy import UserError
from understudy.data import Sentences
from understudy.lab.pieces import network_rows
from understudy.measures.reconstruction import reconstruction
from understudy.nets.latent.files import load_codes
from understudy.papers.autoencoder.movie_sentences import grammar
from understudy.papers.autoencoder.movie_sentences.claims import claims
from understudy.papers.autoencoder.movie_sentences.results import by_setting
from understudy.papers.autoencoder.movie_sentences.story import story
from understudy.papers.autoencoder.movie_sentences.study import MovieSentences

FULL = MovieSentences(seeds=3)
TINY = MovieSentences(
    seeds=1,
    made=60,
    longest=5,
    least=1,
    targets=(0.0, 1.0),
    remedies=("vae",),
    steps=6,
    batch=16,
    samples=16,
    warm_up=3,
    penalty_from=2,
    latent=2,
    embedding=4,
    hidden=8,
    probes=3,
    evaluated=20,
    information_samples=20,
    information_codes=8,
    device="cpu",
)
SHORT = ["--seeds", "1", "--steps", "2", "--penalty-from", "1"]
SHARES = {0.0: 0.1, 2.5: 0.2, 5.0: 0.3, 7.5: 0.4, 10.0: 0.5}


def made(study, change=None):
    """A run with given shares of reconstructed sentences; `change` replaces the share of a member and kind, or is NaN
    for a network that diverged."""
    members, rows, information = study.members(), [], []
    for i, member in enumerate(members):
        for which in ("training", "test"):
            for code in ("mean", "sampled", "prior"):
                share = SHARES[member.setting.target] if code == "mean" else 0.08
                found = {"network": i, "set": which, "code": code, "exact": share / 2, "matching": share}
                if change is not None and (other := change(member, which, code)) is not None:
                    found |= other
                if math.isfinite(found["matching"]):
                    rows.append(found)
        information.append({"network": i, "value": member.setting.target})
    networks = network_rows(0, [each.seed for each in members], setting=[each.setting.label for each in members])
    tables = {"reconstructions": pa.Table.from_pylist(rows), "information": pa.Table.from_pylist(information)}
    return run_of({"networks": networks} | tables, (0,), {}, study.config())


def decided(study=FULL, change=None):
    return {claim.part: claim for claim in claims(study, made(study, change))}


class TestClaims:
    def test_shares_that_rise_hold(self):
        found = decided()
        assert list(found) == [
            *(f"{measure}, {which}" for which in ("training", "test") for measure in ("exact", "matching")),
            "M = 0, training",
            "M = 0, test",
        ]
        assert all(claim.holds and claim.n == 3 for claim in found.values())
        assert found["exact, test"].values == (0.05, 0.15, 0.25)
        assert found["exact, test"].measured.endswith("information 0.0, 5.0, 10.0 nats")

    def test_the_median_of_every_target_must_be_above_the_one_before(self):
        def seeds(count):
            return lambda member, which, code: (
                {"matching": 0.3} if (member.setting.target, code) == (10, "mean") and member.seed <= count else None
            )

        found = decided(change=seeds(2))
        assert not found["matching, test"].holds
        assert found["exact, test"].holds
        assert decided(change=seeds(1))["matching, test"].holds

    @pytest.mark.parametrize(("share", "holds"), [(0.12, True), (0.135, False), (0.04, True), (0.025, False)])
    def test_five_words_in_a_hundred_are_the_bound_without_information(self, share, holds):
        def change(member, which, code):
            return {"matching": share} if (member.setting.target, code, member.seed) == (0, "sampled", 2) else None

        assert decided(change=change)["M = 0, test"].holds is holds

    def test_a_diverged_network_leaves_the_medians_but_is_no_random_sample(self):
        def change(member, *_):
            lost = member.seed == 1 and member.setting.target in (0, 10)
            return {"matching": math.nan} if lost else None

        found = decided(change=change)
        assert found["matching, test"].holds
        assert not found["M = 0, test"].holds

    @pytest.mark.parametrize(
        "options", [{"seeds": 2}, {"targets": (0.0, 5.0)}, {"steps": 10_000}, {"penalty": 1.0}, {"latent": 8}]
    )
    def test_other_settings_decide_nothing(self, options):
        assert not decided(replace(FULL, **options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return compute_run(TINY, tmp_path_factory.mktemp("whole"))


def without(run, lost):
    """The run as if these networks had diverged."""
    tables = {
        name: pa.Table.from_pandas(rows[~rows["network"].isin(lost)], preserve_index=False)
        for name in ("reconstructions", "information", "sentences", "metrics")
        if (rows := run.table(name).to_pandas())["network"].isin(lost).sum() < len(rows) or name == "metrics"
    }
    steps = [3 if i in lost else None for i in range(run.networks.num_rows)]
    networks = run.networks.drop_columns("diverged_at").append_column("diverged_at", pa.array(steps, pa.int64()))
    epochs = run.metrics["epoch"].to_numpy()
    return run_of({"networks": networks, "corpus": run.table("corpus")} | tables, np.unique(epochs), {}, run.config)


class TestStory:
    def test_it_shows_the_figure_and_the_tables_of_the_thesis(self, whole):
        told = story(TINY, whole)
        names = ["reconstruction", "reconstructed-sentences", "information", "interpolations", "samples", "training"]
        assert list(pages(told)) == names
        assert "at M = 0" in told.headline and "at M = 1" in told.headline
        assert "VAE: " in told.figures[0].caption

    def test_networks_that_diverged_are_left_out(self, whole):
        told = story(TINY, without(whole, [0]))
        assert ("1 of 3", "diverged") in [(n.value, n.label) for n in told.numbers]
        lists = told.figures[1].kind
        assert lists.settings == ("M = 1", "VAE")
        pages(told)

    def test_a_remedy_may_be_all_that_is_left(self, whole):
        told = story(TINY, without(whole, [0, 1]))
        for figure in told.figures:
            figure.kind.page()
            figure.kind.paper()

    def test_a_run_whose_networks_all_diverged_says_so(self, whole):
        told = story(TINY, without(whole, [0, 1, 2]))
        assert told.headline == "All networks diverged; lower --rate or --penalty."
        assert list(pages(told)) == ["training"]

    def test_one_target_is_enough(self, tmp_path):
        study = replace(TINY, targets=(1.0,), remedies=("none",))
        told = story(study, compute_run(study, tmp_path))
        assert "sliders" not in pages(told)["samples"]["layout"]
        assert "at M = 0" not in told.headline

    def test_dropped_lines_are_counted_and_stated(self, tmp_path):
        lines = [
            *grammar.sentences(80),
            "",
            *["what a very long and very dull film this is"] * 3,
            grammar.sentences(80)[0],
        ]
        (tmp_path / "mine.txt").write_text("\n".join(lines))
        study = replace(TINY, made=0, data=str(tmp_path / "mine.txt"), remedies=("none",), targets=(0.0,))
        run = compute_run(study, tmp_path)
        corpus = run.table("corpus").to_pylist()[0]
        assert (corpus["too_long"], corpus["empty"], corpus["repeated"]) == (3, 1, 1)
        caption = story(study, run).figures[0].caption
        assert "from mine.txt: 72 for training" in caption
        assert "3 are longer, 1 are repetitions" in caption and "1 are empty" in caption


class TestRuns:
    def test_an_interrupted_run_ends_with_equal_tables_and_networks(self, whole, tmp_path):
        for words in ("training: step 0 of", "sentences and information of network 2"):
            with pytest.raises(KeyboardInterrupt):
                compute_run(TINY, tmp_path, Interrupting(words))
        assert same_runs(compute_run(TINY, tmp_path), whole)

    def test_a_network_has_the_same_bits_in_a_smaller_study(self, whole, tmp_path):
        alone = compute_run(replace(TINY, targets=(1.0,), remedies=("none",)), tmp_path)
        (file,) = (alone.folder / "models").iterdir()
        assert file.read_bytes() == (whole.folder / "models" / file.name).read_bytes()
        for table in ("metrics", "reconstructions", "information", "sentences"):
            ours, theirs = (run.table(table).to_pandas() for run in (alone, whole))
            theirs = theirs[theirs["network"] == 1].drop(columns="network")
            columns = [*theirs.columns]
            ours = ours.drop(columns="network").sort_values(columns, ignore_index=True)
            assert ours.equals(theirs.sort_values(columns, ignore_index=True)), table

    def test_reconstructions_are_those_of_the_saved_network(self, whole):
        saved = load_codes(whole.folder / "models" / "M1-seed1.safetensors")
        sentences = Sentences(whole.folder / "sentences.txt", longest=5, least=1, validation=0, test=0.1)
        assert saved.vocabulary == sentences.vocabulary.words
        x = sentences.tokens("test")
        with torch.no_grad():
            written = saved.model.decoder.most_likely(saved.model.encode(x).mean)
        found = reconstruction(x, written)
        for measure, share in (("matching", found.matching_share), ("exact", found.exact_share)):
            kept = by_setting(whole, "reconstructions", measure, set="test", code="mean")
            assert kept["M = 1"] == pytest.approx(float(share))
        rows = whole.table("sentences").to_pandas()
        first = rows[(rows["network"] == 1) & (rows["kind"] == "mean")]
        assert dict(zip(first["given"], first["text"], strict=True)) == dict(
            zip(sentences.decode(x), sentences.decode(written), strict=True)
        )

    def test_networks_that_diverge_have_no_file_and_no_values_after_it(self, tmp_path):
        run = compute_run(replace(TINY, rate=1e9, clip=1e9), tmp_path)
        assert run.networks["diverged_at"].null_count == 0
        assert run.networks["model"].to_pylist() == [""] * 3
        assert not list((run.folder / "models").iterdir())
        lost = run.networks.to_pandas().set_index("network")["diverged_at"]
        rows = run.metrics.to_pandas()
        assert (rows["epoch"] < rows["network"].map(lost)).all()
        assert story(TINY, run).headline.startswith("All networks diverged")

    def test_random_samples_are_the_level_without_a_code(self, whole):
        """At the start, the decoder hardly depends on its code, and sampled and prior codes reconstruct alike."""
        sampled, prior = (
            by_setting(whole, "reconstructions", "matching", set="training", code=code)["M = 0"]
            for code in ("sampled", "prior")
        )
        assert np.abs(sampled - prior) < 0.2


LONG = "\n".join(f"number {i} of the sentences that are much too long for it" for i in range(9))


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        (b"\n\n  \n", [], "--data: mine.txt: no line has a word; a text file with a sentence a line is needed"),
        (b"", [], "--data: mine.txt: the file is empty"),
        (b"a film\x00", [], "--data: mine.txt: this is not text: byte 7 of line 1 is 0"),
        (b"caf\xe9\n", [], "--data: mine.txt: this is not text in UTF-8: byte 4 of line 1 is 0xe9"),
        (None, [], "--data: mine.txt: there is no such file"),
        (LONG.encode(), [], "--data: mine.txt: no sentence has at most 8 words, the shortest has 12; raise --longest"),
        (
            b"a film\na plot\nthe end\n",
            ["--words", "100", "--least", "1", "--test", "0.3"],
            "--words must be at most",
        ),
        (b"a film\na plot\nthe end\n", ["--least", "5", "--test", "0.3"], "--least must be at most"),
        (
            b"a film\na plot\nan end\n",
            ["--least", "1", "--test", "0.3"],
            "--data: mine.txt: no test sentence is left, since each has a word outside the vocabulary; raise --test, "
            "lower --least, or give more sentences",
        ),
    ],
)
def test_files_without_such_sentences_are_refused_in_one_line(tmp_path, text, words, error):
    (here := tmp_path / "here").mkdir()
    if text is not None:
        (here / "mine.txt").write_bytes(text)
    refuse(here, ["--data", "mine.txt", *words], error, left=["mine.txt"] * (text is not None))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--made", "60", "--targets", "-1"], "--targets must be at least 0, got -1"),
        (
            ["--made", "60", "--targets", "0", "50"],
            "--targets must be at most 9.66 nats, the entropy of sentences whose words are drawn at each place by "
            "their frequency in the training sentences there, got 50",
        ),
        (["--made", "60", "--penalty", "0"], "--penalty must be above 0, got 0"),
        (["--made", "60", "--resamples", "0"], "--resamples must be at least 1, got 0"),
        (["--made", "541"], "--made must be at least 0 and at most 540, got 541"),
        (["--made", "60", "--penalty-from", "2"], "--penalty-from must be below the number of steps (2), got 2: the"),
        (["--made", "60", "--dtype", "float64"], "--dtype must be float32 or tf32, got float64"),
        (["--made", "60", "--remedies", "none", "vae"], "--remedies takes none alone, got none vae"),
        ([], "--data: there is no movie_reviews.txt in "),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path, words, error):
    refuse(tmp_path, words, error)


def refuse(here, words, error, left=()):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENT, "UNDERSTUDY_DATA", str(here / "nowhere"))
        refused = understudy("run", "movie-sentences", *SHORT, *words, cwd=here, status=2)
    assert refused.stderr.startswith(f"understudy: {error}")
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""
    assert [path.name for path in here.iterdir()] == [*left]


def test_a_code_carries_no_more_than_its_coordinates(tmp_path):
    (tmp_path / "mine.txt").write_text(
        "\n".join(" ".join(f"w{(7 * i + 11 * j) % 97}" for j in range(8)) for i in range(97))
    )
    options = {"data": str(tmp_path / "mine.txt"), "least": 1, "targets": (20.0,)}
    assert MovieSentences(**options, latent=2).corpus().most > 30
    MovieSentences(**options, latent=2).validate_files()
    with pytest.raises(
        UserError, match=r"^--targets must be at most 18.34 nats, what a code in float32 with --latent 1"
    ):
        MovieSentences(**options, latent=1).validate_files()


def test_a_target_above_the_entropy_of_the_sentences_is_warned_of():
    assert not replace(TINY, targets=(3.9,)).warnings()
    (warning,) = replace(TINY, targets=(4.1,)).warnings()
    assert warning.startswith("--targets 4.1 is above log(54) = 3.99 nats, the entropy of the training sentences")


def test_the_entropy_of_words_drawn_by_themselves_by_hand():
    corpus, wanted = TINY.corpus(), 0.0
    texts = [each.split() for each in corpus.sentences.texts("training")]
    for place in range(6):
        counts = Counter(words[place] if place < len(words) else None for words in texts)
        wanted -= sum(n / len(texts) * math.log(n / len(texts)) for n in counts.values())
    assert corpus.most == pytest.approx(wanted)
    assert corpus.entropy == pytest.approx(math.log(54))
