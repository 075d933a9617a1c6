"""Files of torch.export: the outputs of the program, nothing executed, and refusals of what is damaged."""

import io
import json
import os
import pickle
import re
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

import understudy as us
from understudy.nets import from_program
from understudy.nets.graphs.programs import from_pt2

pytestmark = pytest.mark.usefixtures("one_thread")


def pictures():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
    ).eval()


class Viewed(nn.Module):
    """Flattens by the number of samples."""

    def __init__(self):
        super().__init__()
        self.parts = pictures()

    def forward(self, x):
        return self.parts[5:](self.parts[:4](x).view(x.size(0), -1))


def dense(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), *middle, nn.Linear(5, 2)).eval()


def export(model, *size, samples=2, decomposed=False, **how):
    x = torch.randn(samples, *size).to(next(model.parameters()).dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about its own names
        program = torch.export.export(model, (x,), **how)
        return program.run_decompositions() if decomposed else program


def write(program, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write(export(pictures(), 1, 6, 6), tmp_path_factory.mktemp("pt2") / "model.pt2")


PROGRAMS = {
    "pictures": (pictures(), (1, 6, 6), {}),
    "pictures in core operations": (pictures(), (1, 6, 6), {"decomposed": True}),
    "any number of samples": (Viewed().eval(), (1, 6, 6), {"dynamic_shapes": ({0: Dim("n")},)}),
    "line in core operations": (
        nn.Sequential(nn.Conv1d(2, 3, 3), nn.LeakyReLU(0.1), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(9, 2)).eval(),
        *((2, 8), {"decomposed": True}),
    ),
    "mean in core operations": (
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)).eval(),
        *((1, 5, 5), {"decomposed": True}),
    ),
    "weight norm": (
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 2)).eval(),
        *((4,), {}),
    ),
    "float64": (dense(nn.ReLU()).double(), (4,), {}),
}


@pytest.mark.parametrize(("model", "size", "how"), PROGRAMS.values(), ids=PROGRAMS)
def test_files_and_programs_have_the_outputs_of_the_module(model, size, how, tmp_path):
    program = export(model, *size, **how)
    x = torch.randn(7, *size).to(next(model.parameters()).dtype)
    with torch.no_grad():
        wanted = model(x)
    for population in (from_program(program), from_pt2(write(program, tmp_path / "m.pt2"))):
        found = population(x.flatten(1))[0]
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_half_precision_is_widened(tmp_path):
    model = dense(nn.ReLU()).half()
    population = from_pt2(write(export(model, 4), tmp_path / "m.pt2"))
    assert population.dtype == torch.float32
    assert torch.equal(population.layers[0].weight[0], model[0].weight.float())


REFUSED = {
    "1 (GELU): the operation gelu": (dense(nn.GELU()), (4,), {}),
    "1 (BatchNorm1d): BatchNorm in training mode depends on the batch; export the model after model.eval()": (
        dense(nn.BatchNorm1d(5), nn.ReLU()).train(),
        *((4,), {}),
    ),
    "0 (Conv2d): reads values of shape [2, 1, 's": (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval(),
        *((1, 6, 6), {"dynamic_shapes": ({2: Dim("h", min=4, max=64)},)}),
    ),
    "its weights are computed by matrix_exp": (
        nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))).eval(),
        *((4,), {}),
    ),
}


@pytest.mark.parametrize(("words", "made"), REFUSED.items(), ids=[words[:20] for words in REFUSED])
def test_what_a_population_cannot_represent_is_refused_by_name(words, made, tmp_path):
    model, size, how = made
    file = write(export(model, *size, **how), tmp_path / "m.pt2")
    with pytest.raises(us.UserError) as refused:
        from_pt2(file)
    assert str(refused.value).startswith(f"{file}: ") and words in str(refused.value)


def rewritten(source, target, change):
    """Copy an archive; `change` maps each record's name below the root and its bytes to new bytes, or None."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = change(info.filename.partition("/")[2], old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    return target


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_a_file_is_executed(archive, tmp_path):
    """Sample inputs are a pickle that torch.export.load executes; expressions of sizes are Python code to it."""
    burnt, buffer = tmp_path / "burnt", io.BytesIO()
    torch.save((Bomb(burnt),), buffer)
    expression = f"__import__('os').mkdir({str(burnt)!r})"

    def change(name, data):
        if name.startswith("data/sample_inputs/"):
            return buffer.getvalue()
        if name.startswith("models/"):
            graph = json.loads(data)
            for size in graph["graph_module"]["graph"]["tensor_values"]["input"]["sizes"][:1]:
                size.clear()
                size["as_expr"] = {"expr_str": expression, "hint": None}
            return json.dumps(graph).encode()
        return data

    file = rewritten(archive, tmp_path / "evil.pt2", change)
    assert from_pt2(file).sizes == (1, 4, 5, 3) and not burnt.exists()
    with pytest.raises(FileExistsError):  # the pickle does work
        burnt.mkdir()
        pickle.loads(pickle.dumps(Bomb(burnt)))


def test_pickled_weights_and_foreign_operations_are_refused(archive, tmp_path):
    def pickled(name, data):
        return data.replace(b'"use_pickle": false', b'"use_pickle": true') if "weights_config" in name else data

    with pytest.raises(us.UserError, match=r"0 \(Conv2d\): its weights are"):
        from_pt2(rewritten(archive, tmp_path / "pickled.pt2", pickled))

    def foreign(name, data):
        return data.replace(b"torch.ops.aten.max_pool2d.default", b"torch.hub.load") if "models/" in name else data

    with pytest.raises(us.UserError, match=r"3 \(MaxPool2d\): the operation torch\.hub\.load"):
        from_pt2(rewritten(archive, tmp_path / "foreign.pt2", foreign))


def declare(path, value):
    """A change of the description of the weights."""

    def change(name, data):
        if "weights_config" not in name:
            return data
        config = json.loads(data)
        meta = config["config"]["6.weight"]["tensor_meta"]
        meta[path] = value
        return json.dumps(config).encode()

    return change


def sides(*values):
    return [{"as_int": value} for value in values]


def removed(start):
    return lambda name, data: None if name.startswith(start) else data


DAMAGED = {
    "huge": (declare("sizes", sides(10**6, 10**6)), "6.weight declares the shape [1000000, 1000000], but 180 numbers"),
    "huge without strides": (
        lambda name, data: declare("strides", sides(0, 0))(name, declare("sizes", sides(10**6, 10**6))(name, data)),
        "6.weight declares the shape [1000000, 1000000], but 180 numbers",
    ),
    "negative": (declare("sizes", sides(-5, 36)), "6.weight declares the shape [-5, 36]"),
    "beyond": (declare("storage_offset", {"as_int": 1}), "6.weight declares the shape [5, 36], but 180 numbers"),
    "unknown type": (declare("dtype", 99), "6.weight has a data type that is not supported, 99"),
    "missing weights": (removed("data/weights/weight_4"), "6.weight declares the shape [5, 36], but 0 numbers"),
    "missing graph": (removed("models/"), "the archive contains 0 programs"),
    "missing description": (removed("data/weights/model_weights"), "the archive lacks data/weights/model_weights"),
    "another version": (
        lambda name, data: data.replace(b'"schema_version": {"major": 8', b'"schema_version": {"major": 9'),
        "the file has version 9 of the format and byte order 'little', but version 8 and 'little' are needed",
    ),
    "another byte order": (lambda name, data: b"big" if name == "byteorder" else data, "byte order 'big'"),
    "no JSON": (lambda name, data: b"{" if "models/" in name else data, "truncated, damaged or not written by"),
    "dilation": (
        lambda name, data: data.replace(
            b'{"name": "padding", "arg": {"as_ints": [1, 1]}, "kind": 1}',
            b'{"name": "dilation", "arg": {"as_ints": [1000000, 1000000]}, "kind": 1}',
        ),
        "spans [2000001, 2000001] pixels does not fit a padded map of [6, 6]",
    ),
    "padding": (
        lambda name, data: data.replace(
            b'{"name": "padding", "arg": {"as_ints": [1, 1]}, "kind": 1}',
            b'{"name": "padding", "arg": {"as_ints": [1000000, 1000000]}, "kind": 1}',
        ),
        "is too large",
    ),
    "other sizes": (
        lambda name, data: data.replace(b'"as_int": 36}', b'"as_int": 18}') if "models/" in name else data,
        "4 (Flatten): reshapes [2, 4, 3, 3] to [2, 18]",
    ),
}


@pytest.mark.parametrize(("change", "words"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives_are_refused(archive, tmp_path, change, words):
    file = rewritten(archive, tmp_path / "m.pt2", change)
    with pytest.raises(us.UserError) as refused:
        from_pt2(file)
    assert str(refused.value).startswith(f"{file}: ") and words in str(refused.value)


def test_compressed_records_are_refused(archive, tmp_path):
    file = tmp_path / "m.pt2"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("m/models/model.json", b" " * 10**6)
    with pytest.raises(us.UserError, match=r"models/model\.json is compressed or declares 1,000,000 bytes"):
        from_pt2(file)


def test_other_kinds_of_files_are_refused(tmp_path):
    file = tmp_path / "m.pt2"
    with pytest.raises(us.UserError, match="there is no such file"):
        from_pt2(file)
    torch.save(dense().state_dict(), file)
    with pytest.raises(
        us.UserError, match="the archive contains 0 programs, but one is needed; it is truncated or of another"
    ):
        from_pt2(file)
    file.write_bytes(b"not an archive")
    with pytest.raises(us.UserError, match=r"not written by torch\.export\.save \(File is not a zip file\)"):
        from_pt2(file)


def damaged(data, contents):
    """Some bytes replaced, or the end cut off."""
    contents = bytearray(contents)
    if data.draw(st.booleans()):
        del contents[data.draw(st.integers(0, len(contents) - 1)) :]
    for _ in range(data.draw(st.integers(1, 20))) if contents else ():
        contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
    return bytes(contents)


def renumbered(data, contents):
    """Numbers of the description replaced by others."""
    numbers = [0, -1, 1, 3, 10**6, 10**12, 1e300, None]
    places = data.draw(st.sets(st.integers(0, 150), max_size=3))
    found = iter(range(10**6))
    return re.sub(
        rb": (\[)?-?\d+\b",
        lambda m: (
            m[0]
            if next(found) not in places
            else m[0].rstrip(b"0123456789-") + json.dumps(data.draw(st.sampled_from(numbers))).encode()
        ),
        contents,
    )


@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_refused_or_harmless(archive, data):
    file = Path(archive).with_name("damaged.pt2")
    kind = data.draw(st.sampled_from(["file", "models/model.json", "data/weights/model_weights_config.json"]))
    if kind == "file":
        file.write_bytes(damaged(data, archive.read_bytes()))
    else:
        change = data.draw(st.sampled_from([damaged, renumbered]))
        rewritten(archive, file, lambda name, contents: change(data, contents) if name == kind else contents)
    try:
        assert isinstance(from_pt2(file), us.Population)
    except us.UserError as error:
        assert str(file) in str(error)
