"""ONNX files: the outputs of the network, and refusals of what is damaged, incomplete or not supported."""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import understudy as us
from understudy.nets.graphs.onnx import from_onnx

pytestmark = pytest.mark.usefixtures("one_thread")


class Writer:
    """Writes a stack of modules as an ONNX file, node by node."""

    def __init__(self, version=18):
        self.nodes, self.tensors, self.version, self.last = [], [], version, "x"

    def node(self, kind, *tensors, **attributes):
        names = [self.tensor(each) for each in tensors]
        out = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, [self.last, *names], [out], name=f"{kind}{len(self.nodes)}", **attributes)
        )
        self.last = out

    def tensor(self, given):
        if given is None:
            return ""
        array = given.detach().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
        self.tensors.append(numpy_helper.from_array(array, f"t{len(self.tensors)}"))
        return self.tensors[-1].name

    def add(self, part, linear="Gemm"):
        kind = type(part)
        if kind in (nn.Conv1d, nn.Conv2d):
            pads = {"pads": [*part.padding] * 2} if part.padding != "same" else {"auto_pad": "SAME_UPPER"}
            how = {"strides": part.stride, "dilations": part.dilation, "group": part.groups}
            self.node("Conv", part.weight, part.bias, kernel_shape=part.kernel_size, **how, **pads)
        elif kind in (nn.BatchNorm1d, nn.BatchNorm2d):
            parts = (part.weight, part.bias, part.running_mean, part.running_var)
            self.node("BatchNormalization", *parts, epsilon=part.eps)
        elif kind is nn.Linear and linear == "Gemm":
            self.node("Gemm", part.weight, part.bias, transB=1)
        elif kind is nn.Linear:
            self.node("MatMul", part.weight.T)
            self.node("Add", part.bias)
        elif kind is nn.LeakyReLU:
            self.node("LeakyRelu", alpha=part.negative_slope)
        elif kind in (nn.MaxPool2d, nn.AvgPool2d):
            both = {name: [getattr(part, name)] * 2 for name in ("kernel_size", "stride", "padding")}
            more = {} if kind is nn.MaxPool2d else {"count_include_pad": 1}
            more |= {"kernel_shape": both["kernel_size"], "strides": both["stride"], "pads": both["padding"] * 2}
            self.node("MaxPool" if kind is nn.MaxPool2d else "AveragePool", **more)
        else:
            self.node({nn.ReLU: "Relu", nn.Flatten: "Flatten", nn.Dropout: "Dropout", nn.Identity: "Identity"}[kind])

    def model(self, size, kind=TensorProto.FLOAT, samples="N"):
        inputs = [helper.make_tensor_value_info("x", kind, [samples, *size])]
        outputs = [helper.make_tensor_value_info(self.last, kind, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.version)], ir_version=8)


def written(model, size, linear="Gemm", **how):
    writer = Writer()
    for part in model:
        writer.add(part, linear)
    return writer.model(size, **how)


def trained(model):
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return model.eval()


def pictures():
    torch.manual_seed(0)
    return trained(
        nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()),
            *(nn.Dropout(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
        )
    )


def save(model, path):
    onnx.save(model, path)
    return path


def require_outputs(model, size, file):
    x = torch.randn(5, *size)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about padding of even kernels
        wanted = model(x)
    found = from_onnx(file)(x.flatten(1))[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("linear", ["Gemm", "MatMul and Add"])
@pytest.mark.parametrize("samples", ["N", 3])
def test_outputs_are_those_of_the_module(linear, samples, tmp_path):
    model = pictures()
    file = save(written(model, (1, 6, 6), linear, samples=samples), tmp_path / "m.onnx")
    require_outputs(model, (1, 6, 6), file)
    assert from_onnx(file).shape == us.from_module(model, image=(6, 6)).shape


@st.composite
def stacks(draw):
    axes = draw(st.integers(1, 2))
    conv, norm = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))[axes - 1]
    sides = tuple(draw(st.integers(7, 9)) for _ in range(axes))

    def each(least, largest):
        return tuple(draw(st.integers(least, largest)) for _ in range(axes))

    how = {"dilation": each(1, 2), "groups": draw(st.integers(1, 2))}
    if draw(st.booleans()):
        how |= {"padding": "same", "kernel_size": each(1, 4)}
    else:
        how |= {"padding": each(0, 2), "kernel_size": each(1, 3), "stride": each(1, 2)}
    middle = [nn.LeakyReLU(draw(st.sampled_from([0.1, 0.3])))]
    middle.insert(draw(st.integers(0, 1)), norm(4, eps=draw(st.sampled_from([1e-5, 1e-3]))))
    pools = [nn.MaxPool2d(2, 1), nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1), nn.AvgPool2d(2, 1, 1)] if axes == 2 else []
    pool = draw(st.sampled_from([nn.Identity(), *pools]))
    parts = nn.Sequential(conv(2, 4, **how), *middle, pool, nn.Flatten())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = parts.eval()(torch.zeros(1, 2, *sides)).shape[1]
    return parts.append(nn.Linear(nodes, 3)), (2, *sides)


@settings(max_examples=15)
@given(stacks())
def test_any_stack_has_the_outputs_of_its_module(tmp_path_factory, drawn):
    model, size = drawn
    file = save(written(trained(model), size), tmp_path_factory.getbasetemp() / "stack.onnx")
    require_outputs(model, size, file)


def single(kind, *tensors, size=(2, 5, 4), top=None, **attributes):
    """A convolution, one operation, flattening and a linear layer; or with `top`, without flattening."""
    torch.manual_seed(0)
    writer = Writer()
    writer.add(nn.Conv2d(2, 3, 3, padding=1))
    writer.add(nn.ReLU())
    writer.node(kind, *tensors, **attributes)
    if top is None:
        writer.node("Flatten")
    writer.node("Gemm", torch.randn(top or 3, 2))
    return writer.model(size)


SINGLE = {
    "GlobalAveragePool": (single("GlobalAveragePool"), lambda h: h.mean((2, 3))),
    "GlobalMaxPool": (single("GlobalMaxPool"), lambda h: h.amax((2, 3))),
    "ReduceMean": (single("ReduceMean", [2, 3]), lambda h: h.mean((2, 3))),
    "ReduceMean without axes": (single("ReduceMean", np.array([-1, 2]), keepdims=0, top=3), lambda h: h.mean((2, 3))),
    "Reshape": (single("Reshape", np.array([0, -1]), top=60), lambda h: h.flatten(1)),
    "Reshape by number": (single("Reshape", np.array([-1, 60]), top=60), lambda h: h.flatten(1)),
}


@pytest.mark.parametrize(("model", "function"), SINGLE.values(), ids=SINGLE)
def test_operations_on_maps(model, function, tmp_path):
    population = from_onnx(save(model, tmp_path / "m.onnx"))
    conv, top = (numpy_helper.to_array(model.graph.initializer[i]) for i in (0, -1))
    bias = numpy_helper.to_array(model.graph.initializer[1])
    x = torch.randn(4, 2, 5, 4)
    maps = torch.conv2d(x, torch.tensor(conv), torch.tensor(bias), padding=1).relu()
    torch.testing.assert_close(population(x.flatten(1))[0], function(maps) @ torch.tensor(top), rtol=1e-4, atol=1e-5)


def test_targets_that_depend_on_sizes_and_constants_in_nodes(tmp_path):
    """The nodes that older exporters write for x.view(x.size(0), -1), and weights behind Identity and Transpose."""
    torch.manual_seed(0)
    writer, top = Writer(), nn.Linear(48, 2)
    conv = nn.Conv2d(1, 3, 3)
    writer.add(conv)
    writer.node("Abs")
    maps = writer.last
    for kind, inputs, out, attributes in (
        ("Shape", [maps], "s", {}),
        ("Constant", [], "zero", {"value": numpy_helper.from_array(np.array(0))}),
        ("Gather", ["s", "zero"], "n", {}),
        ("Constant", [], "axes", {"value_ints": [0]}),
        ("Unsqueeze", ["n", "axes"], "first", {}),
        ("Constant", [], "rest", {"value_ints": [-1]}),
        ("Concat", ["first", "rest"], "target", {"axis": 0}),
        ("Reshape", [maps, "target"], "flat", {}),
        ("Identity", [writer.tensor(top.weight)], "same", {}),
        ("Transpose", ["same"], "turned", {"perm": [1, 0]}),
        ("MatMul", ["flat", "turned"], "product", {}),
        ("Add", [writer.tensor(top.bias), "product"], "y", {}),
    ):
        writer.nodes.append(helper.make_node(kind, inputs, [out], name=out, **attributes))
    writer.last = "y"
    file = save(writer.model((1, 6, 6)), tmp_path / "m.onnx")
    population, x = from_onnx(file), torch.randn(3, 1, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(population(x.flatten(1))[0], top(conv(x).abs().flatten(1)), rtol=1e-5, atol=1e-5)
    assert population.slope == -1


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT16, torch.float16), (TensorProto.DOUBLE, torch.float64)])
def test_other_precisions_are_kept_or_widened(kind, dtype, tmp_path):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).to(dtype)
    population = from_onnx(save(written(model, (4,), kind=kind), tmp_path / "m.onnx"))
    assert population.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(population.layers[0].weight[0], model[0].weight.to(population.dtype))


@pytest.mark.parametrize("version", [10, 18])
def test_clipping_from_zero_up_is_relu_and_zero_padding_belongs_to_the_convolution(version, tmp_path):
    torch.manual_seed(0)
    writer, conv, top = Writer(version), nn.Conv2d(2, 3, 3), nn.Linear(3 * 5 * 6, 2)
    pads = [0, 0, 1, 0, 0, 0, 1, 4]
    writer.node("Pad", *([np.array(pads)] if version > 10 else []), **({} if version > 10 else {"pads": pads}))
    writer.add(conv)
    writer.node("Clip", *([np.float32(0)] if version > 10 else []), **({} if version > 10 else {"min": 0.0}))
    writer.node("Flatten")
    writer.add(top)
    population = from_onnx(save(writer.model((2, 5, 4)), tmp_path / "m.onnx"))
    assert population.slope == 0 and population.image == (5, 4)
    x = torch.randn(4, 2, 5, 4)
    with torch.no_grad():
        wanted = top(conv(torch.nn.functional.pad(x, (0, 4, 1, 1))).relu().flatten(1))
    torch.testing.assert_close(population(x.flatten(1))[0], wanted, rtol=1e-4, atol=1e-5)


def branched():
    writer = Writer()
    writer.add(nn.Linear(4, 4))
    writer.nodes.append(helper.make_node("Add", ["x", writer.last], ["y"], name="sum"))
    writer.last = "y"
    return writer.model((4,))


def ending(kind, domain="", **attributes):
    writer = Writer()
    writer.add(nn.Linear(4, 5))
    writer.node(kind, domain=domain, **attributes)
    model = writer.model((4,))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


REFUSED = {
    "Clip2 (Clip): clipping is supported only as ReLU, from 0 up, got 0.0 to 6.0": lambda: single(
        "Clip", np.float32(0), np.float32(6)
    ),
    "Pad2 (Pad): padding is supported only with zeros, got the mode reflect": lambda: single(
        "Pad", np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect"
    ),
    "Gelu1 (Gelu): the operation Gelu is not among": lambda: ending("Gelu"),
    "Softmax1 (Softmax): the operation Softmax follows the outputs": lambda: ending("Softmax"),
    "Relu1 (Relu): follows the outputs": lambda: ending("Relu"),
    "Magic1 (Magic): the operation my.lab.Magic": lambda: ending("Magic", domain="my.lab"),
    "the inputs are used by Gemm0 (Gemm), sum (Add), but only stacks": branched,
    "AveragePool2 (AveragePool): average pooling with count_include_pad=False": lambda: single(
        "AveragePool", kernel_shape=[2, 2], pads=[1, 1, 1, 1], top=90
    ),
    "MaxPool2 (MaxPool): pooling with the padding [(0, 1), (0, 1)]": lambda: single(
        "MaxPool", kernel_shape=[2, 2], pads=[0, 0, 1, 1], top=90
    ),
    "Conv0 (Conv): reads values of shape ['N', 2, 'H', 'W'], and H, W can be any number": lambda: single(
        "GlobalMaxPool", size=(2, "H", "W")
    ),
    "the evaluator: reads values of shape ['all', 1000000000, 2]": lambda: written(
        nn.Sequential(nn.Linear(2, 2)), (2,), samples=10**9
    ),
    "Conv0 (Conv): reads values of shape ['N', 2, 1000000, 1000000], more than 100,000,000 numbers": lambda: single(
        "GlobalMaxPool", size=(2, 10**6, 10**6)
    ),
    "Dropout2 (Dropout): Dropout in training mode": lambda: single("Dropout", np.float32(0.5), np.array(True)),
    "must be float, float16 or double, got the type 7": lambda: written(
        nn.Sequential(nn.Linear(2, 2)), (2,), kind=TensorProto.INT64
    ),
}


@pytest.mark.parametrize(("words", "made"), REFUSED.items(), ids=[words.split(":")[0] for words in REFUSED])
def test_what_a_population_cannot_represent_is_refused_by_name(words, made, tmp_path):
    file = save(made(), tmp_path / "m.onnx")
    with pytest.raises(us.UserError) as refused:
        from_onnx(file)
    assert str(refused.value).startswith(f"{file}: ") and words in str(refused.value)


def stored_beside(tmp_path):
    """A file whose tensors lie in another, and its name."""
    model = pictures()
    file = tmp_path / "m.onnx"
    onnx.save(written(model, (1, 6, 6)), file, save_as_external_data=True, location="m.data", size_threshold=0)
    return model, file


def test_tensors_of_another_file_are_read(tmp_path):
    model, file = stored_beside(tmp_path)
    require_outputs(model, (1, 6, 6), file)


def external(key, value):
    def change(model, folder):
        for each in model.graph.initializer[0].external_data:
            if each.key == key:
                each.value = value(folder) if callable(value) else value

    return change


def truncate(model, folder):
    (folder / "m.data").write_bytes((folder / "m.data").read_bytes()[:-10])


def enlarge(model, folder):
    model.graph.initializer[0].dims[:] = [10**6, 10**6]


OUTSIDE = {
    "missing": (lambda model, folder: (folder / "m.data").unlink(), "its file m.data, with the tensor t0, is missing"),
    "truncated": (truncate, "in m.data, which has"),
    "huge": (enlarge, "declares the shape [1000000, 1000000], 4,000,000,000,000 bytes, at 144 bytes from 0 in m.data"),
    "beyond": (external("offset", "1000000"), "at 144 bytes from 1,000,000 in m.data"),
    "negative": (external("offset", "-4"), "at 144 bytes from -4"),
    "length": (external("length", "100000000000"), "at 100,000,000,000 bytes from 0"),
    "no number": (external("offset", "here"), "the place of the tensor t0 in m.data is damaged"),
    "above": (external("location", "../m.data"), "lie outside of the file's folder, at '../m.data'"),
    "absolute": (
        external("location", lambda folder: str(folder.parent / "m.data")),
        "lie outside of the file's folder",
    ),
    "link": (external("location", "link.data"), "lie outside of the file's folder, at 'link.data'"),
    "folder": (external("location", "."), "its file ., with the tensor t0, is missing"),
}


@pytest.mark.parametrize(("change", "words"), OUTSIDE.values(), ids=OUTSIDE)
def test_tensors_of_another_file_must_be_there(change, words, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    _, file = stored_beside(folder)
    (tmp_path / "m.data").write_bytes((folder / "m.data").read_bytes())
    (folder / "link.data").symlink_to(tmp_path / "m.data")
    model = onnx.load(file, load_external_data=False)
    change(model, folder)
    file.write_bytes(model.SerializeToString())
    with pytest.raises(us.UserError) as refused:
        from_onnx(file)
    assert str(refused.value).startswith(f"{file}: ") and words in str(refused.value)


def declared(*dims):
    model = written(pictures(), (1, 6, 6))
    model.graph.initializer[0].dims[:] = dims
    return model.SerializeToString()


def of_floats():
    model = written(pictures(), (1, 6, 6))
    model.graph.initializer[0].CopyFrom(helper.make_tensor("t0", TensorProto.FLOAT, [2], [1.0, 2.0]))
    model.graph.initializer[0].dims[:] = [10**12]
    return model.SerializeToString()


DAMAGED = {
    "huge": (declared(10**6, 10**6), "t0 declares the shape [1000000, 1000000], 1,000,000,000,000 numbers, but 36"),
    "huge without raw data": (of_floats(), "t0 declares the shape [1000000000000], 1,000,000,000,000 numbers, but 2"),
    "negative": (declared(-4, -9), "t0 declares the shape [-4, -9]"),
    "other shape": (declared(4, 9), "Conv0 (Conv): a convolution of 0 dimensions"),
    "text": (b"this is not a network", "truncated, damaged or no ONNX file"),
    "state dict": (b"PK\x03\x04" + bytes(100), "no ONNX file"),
}


@pytest.mark.parametrize(("contents", "words"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_files_are_refused(contents, words, tmp_path):
    file = tmp_path / "m.onnx"
    file.write_bytes(contents)
    with pytest.raises(us.UserError) as refused:
        from_onnx(file)
    assert str(refused.value).startswith(f"{file}: ") and words in str(refused.value)


@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_refused_or_harmless(tmp_path_factory, data):
    contents = bytearray(written(pictures(), (1, 6, 6)).SerializeToString())
    if data.draw(st.booleans()):
        del contents[data.draw(st.integers(0, len(contents) - 1)) :]
    for _ in range(data.draw(st.integers(1, 10))) if contents else ():
        contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
    file = Path(tmp_path_factory.getbasetemp() / "damaged.onnx")
    file.write_bytes(contents)
    try:
        assert isinstance(from_onnx(file), us.Population)
    except us.UserError as error:
        assert str(file) in str(error)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    file = save(written(pictures(), (1, 6, 6)), tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(us.UserError, match=r"need the package onnx: pip install understudy\[onnx\]"):
        from_onnx(file)
