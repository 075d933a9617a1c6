"""The report of a run of `us.train`: one story for every shape of run, on a page of its own or in a folder."""

import re

import numpy as np
import pytest
import torch

import understudy as us
from understudy.lab.subject import subject_of
from understudy.lab.train_report import mean_rank, story, subject
from understudy.measures import ranks

TEACHER = us.teachers.distinct_rows((4, 3, 2), seeds=[1, 2, 3])
DATA = us.data.Gaussian(dim=4, train=40, evaluation=30)
WIDE = [us.students.gaussian(TEACHER, multiple=k, scale=0.3) for k in (1, 2)]
MANY = us.students.gaussian(TEACHER[0], seeds=range(20))


def train(students=WIDE, teacher=TEACHER, data=DATA, lr=0.05, **options):
    return us.train(students, teacher, data, us.SGD(lr=lr, batch=8), **{"epochs": 3, "steps": 4, **options})


def drawn(run):
    """The figures of a run by name, each drawn for paper and for the page."""
    figures = {figure.name: figure.kind for figure in story(run).figures}
    for kind in figures.values():
        kind.paper()
        assert kind.page()["data"]
    return figures


ALWAYS = {"losses", "layer-curves", "layer-specialization"}


def test_settings_have_panels_with_their_networks():
    run = train()
    figures = drawn(run)
    assert set(figures) == ALWAYS
    panels = figures["losses"].panels
    assert [panel.title for panel in panels] == ["1×", "2×"]
    for k, panel in enumerate(panels):
        for label, metric in (("evaluation", "eval_loss"), ("training", "train_loss")):
            (line,) = (series for series in panel.series if series.label == label)
            networks = run.series(metric)[3 * k : 3 * k + 3]
            np.testing.assert_allclose(line.y, np.median(networks, axis=0))
            np.testing.assert_array_equal(line.network[:, 0], range(3 * k, 3 * k + 3))
    assert story(run).headline.startswith("At the end of training the students had recovered ")
    shares = run.array("recovered", "multiple seed", layer=0).mean("seed").to_numpy()
    assert f"{shares[0]:.0%} at 1× and {shares[1]:.0%} at 2×" in story(run).headline


def test_pairs_give_a_matrix_and_the_rank_of_the_winners():
    run = train(WIDE[1], pairs=True)
    figures = drawn(run)
    assert set(figures) == ALWAYS | {"correlation-matrix", "mean-rank"}
    np.testing.assert_array_equal(figures["correlation-matrix"].correlation[0], run.pairs(0)[-1])
    pairs = np.stack([run.pairs(network) for network in range(3)])
    np.testing.assert_array_equal(run.pairs(), pairs)
    places = ranks(torch.from_numpy(pairs)).numpy() / (pairs.shape[-1] - 1)
    winner = pairs[:, -1].argmax(-1)
    expected = [[places[n, e, range(3), winner[n]].mean() for e in range(4)] for n in range(3)]
    np.testing.assert_allclose(mean_rank(pairs), expected)
    (line,) = figures["mean-rank"].panels[0].series
    np.testing.assert_allclose(line.y, np.median(expected, axis=0))


def test_ranks_ignore_what_was_not_recorded():
    correlation = np.full((2, 3, 2, 4), np.nan)
    correlation[0, :, :, :3] = [[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]] * 2 + [[[0.1, 0.9, 0.3], [0.3, 0.2, 0.1]]]
    correlation[1, 0] = [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]
    np.testing.assert_allclose(mean_rank(correlation), [[0.25, 0.25, 0.0], [0.0, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ({"students": WIDE[0]}, [""]),
        ({"students": WIDE[0], "epochs": 0}, [""]),
        ({"lr": [0.01, 0.02, 0.02] * 2}, ["1×, lr 0.01", "1×, lr 0.02", "2×, lr 0.01", "2×, lr 0.02"]),
        ({"students": [WIDE[0]] * 2}, ["population 0", "population 1"]),
        ({"students": WIDE[0], "stops": [1, 3, 3]}, ["until epoch 1", "until epoch 3"]),
        ({"students": us.students.gaussian(TEACHER, seeds=[7, 7, 7])}, [""]),
        ({"lr": [0.05, 0.05, 1e6] * 2}, ["1×, lr 0.05", "2×, lr 0.05"]),
        ({"students": MANY, "teacher": TEACHER[0], "lr": np.linspace(0.01, 0.1, 20).tolist()}, [""]),
    ],
    ids=["one", "untrained", "rates", "populations", "stops", "equal seeds", "diverged", "many rates"],
)
def test_every_run_has_a_story(options, titles, tmp_path):
    run = train(**options)
    figures = drawn(run)
    assert set(figures) == ALWAYS
    assert [panel.title for panel in figures["losses"].panels] == titles
    assert "Matched nodes" in run.report(tmp_path / "run.html").read_text()
    lost = run.networks["diverged_at"].drop_null()
    assert (f"{len(lost)} of {run.networks.num_rows} networks diverged" in story(run).headline) == bool(len(lost))


def test_every_layer_has_a_line():
    teacher = us.teachers.regular((4, 3, 5, 2), seeds=[1, 2])
    figures = drawn(train(us.students.like_linear(teacher, multiple=2), teacher))
    assert [series.label for series in figures["layer-curves"].panels[0].series] == ["layer 1", "layer 2"]


class Signs(us.data.Gaussian):
    """Inputs labelled by the sign of their first number."""

    classes = 2

    def training_labels(self, seed, epoch=1):
        return (self.training(seed, epoch)[:, 0] > 0).long()

    def evaluation_labels(self, seed):
        return (self.evaluating(seed)[:, 0] > 0).long()


def test_labels_give_a_figure_of_accuracies():
    run = train(WIDE[0], data=Signs(dim=4, train=40, evaluation=30), objective=us.CrossEntropy())
    figures = drawn(run)
    assert set(figures) == ALWAYS | {"accuracy"}
    student, teacher = figures["accuracy"].panels[0].series
    assert (student.label, teacher.label) == ("student", "teacher")
    np.testing.assert_allclose(student.y, np.median(run.series("accuracy"), axis=0))


def test_a_run_of_diverged_networks_says_so(tmp_path):
    run = train(WIDE[0], lr=1e6)
    assert story(run).headline.startswith("All 3 networks diverged, the first at step ")
    assert story(run).figures == ()
    assert "networks, all diverged" in run.report(tmp_path / "run.html").read_text()


def test_the_page_has_the_table_and_how_the_run_was_made(tmp_path):
    run = train(WIDE[1], stops=[1, 3, 3])
    rows = subject(run).table(run)
    last = (
        run.matched("teacher", "student", 0, 1)[0].tolist()
        + run.matched("teacher", "student", 0, 3)[1:].ravel().tolist()
    )
    assert rows["student"].to_pylist() == last
    page = run.report(tmp_path / "run.html").read_text()
    assert "us.train(students, teacher, data, us.SGD(lr=0.05, batch=8" in page and "epochs=3, steps=4)" in page
    assert "Does it agree with the paper?" not in page and not re.search(r'href="[^"#]*parquet', page)
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


def test_a_saved_run_is_reported_in_its_folder(tmp_path):
    run = train(WIDE[0])
    saved = run.save(tmp_path / "run")
    assert saved.report() == saved.folder / "report.html"
    assert {path.stem for path in (saved.folder / "figures").iterdir()} == ALWAYS
    assert (saved.folder / "headline.txt").read_text().strip() == story(run).headline
    assert saved.report(tmp_path / "page.html") == tmp_path / "page.html"


def test_where_the_page_goes(tmp_path):
    run = train(WIDE[0], epochs=0)
    with pytest.raises(
        us.UserError, match=r"a run in memory needs a path for its report: run.report\('run.html'\), or"
    ):
        run.report()
    with pytest.raises(us.UserError, match="is a folder; give the name of a file, such as"):
        run.report(tmp_path)
    with pytest.raises(us.UserError, match="cannot be written"):
        run.report(tmp_path / "nowhere" / "run.html")
    assert not list(tmp_path.iterdir())


def test_a_study_keeps_its_own_report(tiny, tmp_path):
    run = us.Run(tiny[1])
    assert subject_of(run).title.startswith("two-layer — ")
    page = run.report(tmp_path / "page.html").read_text()
    assert "Does it agree with the paper?" in page
