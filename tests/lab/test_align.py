"""`us.align` on modules of any kind: against plain numpy, against populations, and the words of its errors."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import understudy as us
from support.modules import Attention, Recurrent, dense, residual, seeded
from understudy import UserError
from understudy.lab.align import default_batch

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.randn(150, 3, 6, 6, generator=torch.Generator().manual_seed(1))
VECTORS = torch.randn(400, 5, generator=torch.Generator().manual_seed(2))
SEQUENCES = torch.randn(90, 6, 5, generator=torch.Generator().manual_seed(3))
WORDS = torch.randint(0, 11, (80, 6), generator=torch.Generator().manual_seed(4))


def outputs(model, names, *args, **kwargs):
    """Outputs of submodules on all data at once, each [row, node] of samples at positions."""
    found, parts = {}, dict(model.named_modules())

    def keep(name):
        def hook(_, __, output):
            found[name] = (output[0] if isinstance(output, tuple) else output).detach().clone()

        return hook

    hooks = [parts[name].register_forward_hook(keep(name)) for name in names]
    with torch.no_grad():
        model(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    return found


def correlation(x, y):
    return np.corrcoef(x.double().numpy().T, y.double().numpy().T)[: x.shape[1], x.shape[1] :]


def population(model):
    """The population of one network with a stack's weights."""
    weights = [(part.weight.detach()[None], part.bias.detach()[None]) for part in model if isinstance(part, nn.Linear)]
    return us.Population(tuple(us.nets.Layer(*pair) for pair in weights), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("sizes", [(5, 7, 2), (5, 6, 9, 2)])
def test_rectified_stacks_agree_with_the_alignment_of_populations(sizes):
    teacher, student = (seeded(dense, *s, seed=i).double() for i, s in enumerate([(5, 8, 6, 2), sizes]))
    x = VECTORS.double()
    found = us.align(teacher, student, x)
    layers = us.align(population(teacher), population(student), x)
    for name, layer in zip(("1", "3"), layers, strict=False):
        torch.testing.assert_close(found[name, name].correlation, layer.correlation, atol=1e-6, rtol=0)
        assert torch.equal(found[name, name].best, layer.best)
        assert found[name, name].recovered == layer.recovered


def test_a_residual_network_of_another_depth_and_width_agrees_with_numpy():
    teacher, student = seeded(residual, 6, 2), seeded(residual, 9, 1, seed=1)
    found = us.align(teacher, student, IMAGES, batch=64)
    assert found.teacher_layers == ("1", "2.relu#1", "2.relu#2", "3.relu#1", "3.relu#2", "5.relu#1", "5.relu#2", "8")
    assert found.student_layers == ("1", "2.relu#1", "2.relu#2", "4.relu#1", "4.relu#2", "7")
    # Outputs of blocks are those of their second ReLU.
    t, s = outputs(teacher, ["1", "3", "8"], IMAGES), outputs(student, ["2", "4"], IMAGES)
    at_positions = correlation(*(x.movedim(1, 3).reshape(-1, x.shape[1]) for x in (t["3"], s["2"])))
    np.testing.assert_allclose(found["3.relu#2", "2.relu#2"].correlation, at_positions, atol=1e-5)
    averaged = correlation(*(x.mean((2, 3)) for x in (t["3"], s["4"])))
    np.testing.assert_allclose(found["3.relu#2", "4.relu#2"].correlation, averaged, atol=1e-5)
    head = correlation(t["8"], s["4"].mean((2, 3)))
    np.testing.assert_allclose(found["8", "4.relu#2"].correlation, head, atol=1e-5)
    assert found["3.relu#2", "2.relu#2"].at_positions and not found["3.relu#2", "4.relu#2"].at_positions
    assert any("compared after averaging over positions" in note for note in found.notes)
    blocks = us.align(teacher, student, IMAGES, layers={"teacher": "[23]", "student": ["2"]})
    assert blocks.teacher_layers == ("2", "3") and blocks.student_layers == ("2",)
    np.testing.assert_allclose(blocks["3", "2"].correlation, at_positions, atol=1e-5)


def test_outputs_that_are_changed_in_place_are_recorded_as_they_were():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).eval()
    found = us.align(model, model, VECTORS, layers=["0", "1"])
    before = model[0](VECTORS).detach()
    np.testing.assert_allclose(found["0", "1"].correlation, correlation(before, before.relu()), atol=1e-5)


def test_attention_with_dicts_of_arguments_and_padding():
    teacher, student = seeded(Attention, 16), seeded(Attention, 8, seed=1)
    mask = (torch.arange(6) < torch.randint(2, 7, (80, 1), generator=torch.Generator().manual_seed(5))).long()
    data = [{"input_ids": WORDS[i : i + 30], "attention_mask": mask[i : i + 30]} for i in range(0, 80, 30)]
    found = us.align(teacher, student, data)
    assert found.teacher_layers == found.student_layers
    assert "teacher place: left out, without an axis of samples" in found.notes
    assert {"encoder.self_attn", "encoder.linear1", "encoder.norm2", "head"} <= set(found.teacher_layers)
    names = ["encoder.linear1", "encoder.self_attn", "head"]
    t, s = (outputs(m, names, input_ids=WORDS, attention_mask=mask) for m in (teacher, student))
    for a, b in (("encoder.linear1", "encoder.linear1"), ("encoder.linear1", "encoder.self_attn")):
        rows = correlation(t[a][mask.bool()], s[b][mask.bool()])
        np.testing.assert_allclose(found[a, b].correlation, rows, atol=1e-5)
    mean = (t["encoder.linear1"] * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(found["encoder.linear1", "head"].correlation, correlation(mean, s["head"]), atol=1e-5)


def test_positions_are_not_taken_for_samples_where_there_are_as_many():
    model = seeded(Attention)
    found = us.align(model, model, [{"input_ids": WORDS[i : i + 6]} for i in range(0, 78, 6)])
    assert "place" not in found.teacher_layers
    rows = outputs(model, ["encoder.linear1"], input_ids=WORDS[:78])["encoder.linear1"].flatten(0, 1)
    np.testing.assert_allclose(
        found["encoder.linear1", "encoder.linear1"].correlation, correlation(rows, rows), atol=1e-5
    )
    with pytest.raises(
        UserError, match=r"layers: 'place' of the teacher returns \[6, 16\], which has no axis of samples"
    ):
        us.align(model, model, [{"input_ids": WORDS[:6]}], layers="place")


def test_a_gru_against_gelu_layers_of_another_depth():
    teacher = seeded(Recurrent)
    student = seeded(dense, 5, 9, 8, 4, activation=nn.GELU, seed=1)
    found = us.align(teacher, student, SEQUENCES)
    assert found.teacher_layers == ("gru", "head") and found.student_layers == ("1", "3", "4")
    t, s = outputs(teacher, ["gru", "head"], SEQUENCES), outputs(student, ["1", "3"], SEQUENCES)
    np.testing.assert_allclose(
        found["gru", "3"].correlation, correlation(t["gru"].flatten(0, 1), s["3"].flatten(0, 1)), atol=1e-5
    )
    np.testing.assert_allclose(found["head", "1"].correlation, correlation(t["head"], s["1"].mean(1)), atol=1e-5)


def test_modules_that_take_time_first():
    first, batch_first = seeded(Recurrent, batch_first=False), seeded(Recurrent)
    data = [part.transpose(0, 1) for part in SEQUENCES.split(40)]
    same, wanted = us.align(first, first, data), us.align(batch_first, batch_first, SEQUENCES)
    for pair in (("gru", "gru"), ("gru", "head")):
        np.testing.assert_allclose(same[pair].correlation, wanted[pair].correlation, atol=1e-5)
    with pytest.raises(UserError, match=r"'gru' of the teacher has batch_first=False and takes \[time,"):
        us.align(first, first, SEQUENCES.transpose(0, 1))
    with pytest.raises(
        UserError, match="batch 0 of data has as many samples as steps, 6, so that they cannot be told apart"
    ):
        us.align(first, first, [SEQUENCES[:6].transpose(0, 1)])


def test_a_network_matches_itself_and_a_permuted_copy():
    model = seeded(dense, 5, 6, 3, activation=nn.Tanh)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    other = seeded(dense, 5, 6, 3, activation=nn.Tanh)
    with torch.no_grad():
        other[0].weight.copy_(model[0].weight[order])
        other[0].bias.copy_(model[0].bias[order])
        other[2].weight.copy_(model[2].weight[:, order])
    found = us.align(model, other, VECTORS)
    assert found["1", "1"].best.tolist() == order.argsort().tolist()
    assert found["1", "1"].recovered == 6
    assert found.best_layers == {"1": "1", "2": "2"}
    assert np.diag(found.cka) == pytest.approx(1)
    frame = found.to_pandas()
    rows = frame[(frame.teacher_layer == "1") & (frame.student_layer == "1")]
    assert rows.student.tolist() == order.argsort().tolist()
    layers = found.to_pandas("layers")
    assert len(layers) == 4 and layers.mean_best_correlation[0] == pytest.approx(1)
    assert "1              1                   1.000" in repr(found)
    assert "Alignment of 2 × 2 layers, 400 samples" in found._repr_html_()


@pytest.mark.parametrize("kind", ["numpy", "pandas", "loader", "source"])
def test_data_of_other_kinds_give_the_same(kind):
    pandas = pytest.importorskip("pandas")
    model, other = seeded(dense, 5, 4, 2), seeded(dense, 5, 6, 2, seed=1)
    data = {
        "numpy": VECTORS.double().numpy(),
        "pandas": pandas.DataFrame(VECTORS.numpy()),
        "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(VECTORS), batch_size=77, shuffle=True),
        "source": us.data.Fixed(torch.zeros_like(VECTORS), VECTORS),
    }[kind]
    found, wanted = us.align(model, other, data), us.align(model, other, VECTORS)
    np.testing.assert_allclose(found["1", "1"].correlation, wanted["1", "1"].correlation, atol=1e-5)
    assert found.samples == 400
    assert ("inputs: the evaluation inputs of seed 0 of the source" in found.notes) == (kind == "source")


def test_modes_are_restored_and_training_mode_is_said():
    model = seeded(residual, 4, 1).train()
    model[2].bn1.eval()
    before = {name: part.training for name, part in model.named_modules()}
    statistics = model[2].bn2.running_mean.clone()
    with pytest.warns(
        UserWarning, match="the teacher is in training mode with BatchNorm2d; it is evaluated in evaluation"
    ):
        found = us.align(model, model, IMAGES)
    assert {name: part.training for name, part in model.named_modules()} == before
    assert torch.equal(model[2].bn2.running_mean, statistics)
    assert not any(part._forward_hooks for part in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()
    wanted = us.align(model.eval(), model, IMAGES)
    np.testing.assert_array_equal(found.cka, wanted.cka)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        us.align(dense(5, 4, 2).train(), dense(5, 4, 2), VECTORS)


def test_hooks_and_modes_are_restored_after_an_error():
    model = seeded(residual, 4, 1).train()
    with pytest.warns(UserWarning), pytest.raises(UserError):
        us.align(model, model, IMAGES[:, :2])
    assert model.training and not any(part._forward_hooks for part in model.modules())


def test_layers_and_axes_can_be_chosen():
    teacher, student = seeded(dense, 5, 8, 6, 2), seeded(dense, 5, 7, 2, seed=1)
    found = us.align(teacher, student, VECTORS, layers={"teacher": ["1", "3"], "student": "1"})
    assert found.teacher_layers == ("1", "3") and found.student_layers == ("1",)
    mixed = us.align(teacher, student, VECTORS, layers={"teacher": "0"})
    assert mixed.teacher_layers == ("0",) and mixed.student_layers == ("1", "2")
    relu = nn.Sequential(nn.ReLU()).eval()
    assert any("nodes assumed on axis 2 of [90, 6, 5]" in note for note in us.align(relu, relu, SEQUENCES).notes)
    other = us.align(relu, relu, SEQUENCES, axes={"*": 1})
    assert other["0", "0"].correlation.shape == (6, 6) and not other.notes
    with pytest.raises(UserError, match=r"axes: '0' has shape \[90, 6, 5\], which has no axis 3"):
        us.align(relu, relu, SEQUENCES, axes={"0": 3})
    with pytest.raises(UserError, match="axes: axis 0 of '0' of the teacher is the sample, not the nodes"):
        us.align(relu, relu, SEQUENCES[:, :, :3], axes={"0": 0})


class Strange(nn.Module):
    """Calls one layer twice, one never, and one only on positive inputs; one returns whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.never, self.last, self.relu = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2), nn.ReLU()
        self.rank = Rank()

    def forward(self, x):
        x = self.relu(self.twice(self.twice(x)))
        self.rank(x)
        return self.last(self.relu(x) if x[0, 0] > 0 else x)


class Rank(nn.Module):
    def forward(self, x):
        return x.argsort(1)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("twice", "layers: 'twice' of the teacher is called 2 times in its forward pass; choose calls by number, "
                  "'twice#1' and 'twice#2', or all with 'twice#*'"),
        ("never", "layers: 'never' of the teacher is not called in its forward pass, so that it has no activations"),
        ("rank", "layers: 'rank' of the teacher returns no floating-point tensor"),
        (["lats"], "layers: no submodule matches 'lats'; did you mean 'last'?"),
        ({"pupil": "last"}, "layers has the keys teacher and student, got 'pupil'"),
        ({"student": "lost"}, "layers: no submodule matches 'lost'"),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_recorded_are_refused_by_name(layers, words):
    with pytest.raises(UserError, match=re.escape(words)):
        us.align(Strange().eval(), Strange().eval(), VECTORS.abs(), layers=layers)


def test_default_layers_leave_out_what_is_called_twice_and_say_so():
    torch.manual_seed(0)
    found = us.align(Strange().eval(), dense(5, 4, 2).eval(), VECTORS[:1].repeat(50, 1) + torch.randn(50, 5) * 1e-3)
    assert "twice" not in " ".join(found.teacher_layers)
    assert "teacher twice: left out, called more than once" in found.notes
    both = us.align(Strange().eval(), dense(5, 4, 2).eval(), VECTORS.abs(), layers={"teacher": "twice#*"}, batch=400)
    assert both.teacher_layers == ("twice#1", "twice#2")


def test_calls_that_depend_on_the_input_are_refused():
    torch.manual_seed(0)
    model = Strange().eval()
    with torch.no_grad():
        signs = [model.relu(model.twice(model.twice(x[None])))[0, 0] > 0 for x in VECTORS]
    order = [signs.index(True), signs.index(False)]
    with pytest.raises(
        UserError, match="'relu' of the teacher is called 1 times on batch 1 of data and 2 times on the"
    ):
        us.align(model, model, [VECTORS[i : i + 1] for i in order], layers="relu#1")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (VECTORS.double(), "the teacher cannot take the data: data is torch.float64, and the module's parameters are"),
        (VECTORS[:, :4], "the teacher (Sequential) fails on data of shape [256, 4] of torch.float32 with RuntimeError"),
        (VECTORS.long(), "the teacher (Sequential) fails on data of shape [256, 5] of torch.int64"),
        (VECTORS * torch.nan, "data contains NaN or infinity, first at [0, 0]"),
        ([VECTORS, VECTORS[:, :4]], "the teacher (Sequential) fails on batch 1 of data of shape [400, 4]"),
        (VECTORS[:0], "data has no samples"),
    ],
    ids=["dtype", "shape", "whole", "nan", "second", "empty"],
)
def test_data_that_does_not_fit_is_refused(data, words):
    model = dense(5, 4, 2).eval()
    with pytest.raises(UserError, match=re.escape(words)):
        us.align(model, model, data)


def test_weights_that_diverged_are_refused_by_the_layer():
    model = seeded(dense, 5, 4, 2)
    with torch.no_grad():
        model[2].weight[0, 0] = torch.inf
    with pytest.raises(UserError, match="'2' of the teacher has activations that are NaN, infinite or too large"):
        us.align(model, dense(5, 4, 2), VECTORS)


def test_other_kinds_of_networks_are_refused():
    model, x = dense(5, 4, 2), VECTORS
    with pytest.raises(
        UserError, match=r"teacher and student must be two nn\.Modules or two populations, got Sequential and dict"
    ):
        us.align(model, dict(model.state_dict()), x)
    with pytest.raises(UserError, match="memory: the sums over all pairs of layers need"):
        big = nn.Sequential(nn.Linear(5, 2_000_000, bias=False))
        us.align(big, big, x[:2])


def test_few_samples_and_constant_nodes_are_said():
    model = seeded(dense, 5, 40, 2)
    with torch.no_grad():
        model[0].weight[3], model[0].bias[3] = 0.0, -1.0
    found = us.align(model, model, VECTORS[:20])
    assert "teacher 1: 1 of 40 nodes are constant and count as correlation 0" in found.notes
    assert any(note.startswith("20 samples are few: the best of 40 unrelated nodes") for note in found.notes)
    assert found.to_pandas().student.isna().sum() == 2
    with pytest.raises(UserError, match="table must be one of nodes, layers, got 'edges'"):
        found.to_pandas("edges")
    with pytest.raises(UserError, match="'5' is not a compared layer of the student; there are 1, 2"):
        found["1", "5"]


def test_the_page(tmp_path):
    found = us.align(seeded(residual, 4, 1), seeded(residual, 5, 1, seed=1), IMAGES)
    path = found.report(tmp_path / "alignment.html")
    text = path.read_text()
    assert "Which layer learned which layer" in text and "Which node learned which node" in text
    assert "pairs are compared after averaging over positions" in text
    assert "Does it agree with the paper?" not in text
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError, match="cannot be written"):
        found.report(tmp_path / "none" / "alignment.html")


def test_a_page_of_wide_layers_is_small(tmp_path):
    found = us.align(seeded(dense, 5, 700, 900, 2), seeded(dense, 5, 1000, 2, seed=1), VECTORS)
    assert found.report(tmp_path / "wide.html").stat().st_size < 4_000_000


def test_memory_does_not_depend_on_samples():
    """A generator of batches is read once, and no batch is kept."""
    import weakref

    alive, most = [], 0

    def stream():
        nonlocal most
        for _ in range(12):
            most = max(most, sum(ref() is not None for ref in alive))
            batch = torch.randn(50, 5)
            alive.append(weakref.ref(batch))
            yield batch
            del batch

    model = seeded(dense, 5, 4, 2)
    assert us.align(model, model, stream()).samples == 600
    assert most <= 2


def test_batches_on_a_gpu_are_large_unless_samples_are(monkeypatch):
    modules, images = (nn.Linear(2, 2),), torch.empty(5, 3, 224, 224)
    assert default_batch(modules, images) == 256
    monkeypatch.setattr("understudy.lab.align.on_gpu", lambda modules: True)
    assert default_batch(modules, torch.empty(5, 3, 32, 32)) == default_batch(modules, [images]) == 1_024
    assert default_batch(modules, torch.empty(5, 3, 96, 96)) == 606
    assert default_batch(modules, images) == 128


@pytest.mark.parametrize("kind", ["numpy", "pandas", "loader", "batches", "images"])
def test_populations_take_data_of_other_kinds(kind):
    teacher, student = (population(seeded(dense, 6, 5, 2, seed=i)) for i in range(2))
    x = torch.cat((VECTORS, VECTORS[:, :1] ** 2), dim=1)
    data = {
        "numpy": x.numpy(),
        "pandas": pd.DataFrame(x.numpy()),
        "loader": DataLoader(TensorDataset(x, x[:, 0]), batch_size=64),
        "batches": [x[:100].numpy(), (x[100:],)],
        "images": x.view(-1, 2, 3),
    }[kind]
    for find in (us.align, us.measures.align):
        (found,), (wanted,) = find(teacher, student, data), us.align(teacher, student, x)
        assert torch.equal(found.correlation, wanted.correlation)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (VECTORS * torch.nan, "data contains NaN or infinity, first at [0, 0]"),
        ((VECTORS * torch.nan).numpy(), "data contains NaN or infinity, first at [0, 0]"),
        ([VECTORS, VECTORS[:, :4]], "batch 1 of data has 4 inputs per sample, and the first 5"),
        ({"x": VECTORS}, "is a dict of keyword arguments, but populations take one array"),
        (VECTORS[:, :4], "the networks take 5 inputs, and the data has 4 per sample"),
        ("inputs.npy", "data is of type str"),
    ],
)
def test_data_that_populations_cannot_take_is_refused(data, words):
    model = population(dense(5, 4, 2))
    with pytest.raises(UserError, match=re.escape(words)):
        us.align(model, model, data)
