"""Hostile files, made by code: each is small, and a reader without bounds takes gigabytes, or fails."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from PIL import Image

HOSTILE: dict[str, tuple[str, Callable[[Path], Path]]] = {}
"""Reader (see limited.py) and maker of each file, by its name; a maker gets an empty folder."""


def _hostile(reader: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    def register(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        HOSTILE[make.__name__] = (reader, make)
        return make

    return register


def _zipped(path: Path, description: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """An archive such as `torch.save` writes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", description)
        archive.writestr("net/byteorder", "little")
        for key, numbers in (storages or {}).items():
            archive.writestr(f"net/data/{key}", numbers)
        archive.writestr("net/version", "3\n")
    return path


def _text(word: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(word)) + word.encode()


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _tensor(size: tuple[int, ...], stride: tuple[int, ...], count: int) -> bytes:
    """A pickled tensor over the storage 0, which has so many numbers."""
    storage = pickle.MARK + _text("storage") + _global("torch", "FloatStorage") + _text("0") + _text("cpu")
    storage += pickle.dumps(count, 2)[2:-1] + pickle.TUPLE + pickle.BINPERSID
    shape = pickle.dumps(size, 2)[2:-1] + pickle.dumps(stride, 2)[2:-1]
    arguments = pickle.MARK + storage + pickle.dumps(0, 2)[2:-1] + shape + pickle.NEWFALSE + pickle.NONE + pickle.TUPLE
    return _global("torch._utils", "_rebuild_tensor_v2") + arguments + pickle.REDUCE


def _state(*entries: tuple[str, bytes]) -> bytes:
    items = b"".join(_text(name) + value for name, value in entries)
    return pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK + items + pickle.SETITEMS + pickle.STOP


@_hostile("network")
def bytearray_of_5_gb(folder: Path) -> Path:
    call = _global("builtins", "bytearray") + pickle.dumps((5 * 10**9,), 2)[2:-1] + pickle.REDUCE
    return _zipped(folder / "n.pt", _state(("extra", call)))


@_hostile("network")
def bytearray_operation(folder: Path) -> Path:
    declared = pickle.BYTEARRAY8 + struct.pack("<Q", 2**33)
    return _zipped(folder / "n.pt", pickle.PROTO + b"\x05" + declared + pickle.STOP)


@_hostile("network")
def rows_of_stride_0(folder: Path) -> Path:
    return _zipped(folder / "n.pt", _state(("0.weight", _tensor((10**7, 100), (0, 1), 100))), {"0": bytes(400)})


@_hostile("network")
def many_tensors_of_one_storage(folder: Path) -> Path:
    each = [(f"{i}.weight", _tensor((1000, 1000), (1000, 1), 10**6)) for i in range(1000)]
    return _zipped(folder / "n.pt", _state(*each), {"0": bytes(4 * 10**6)})


@_hostile("network")
def nested_tensor(folder: Path) -> Path:
    with __import__("warnings").catch_warnings():
        __import__("warnings").simplefilter("ignore")
        torch.save({"0.weight": torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 3)])}, folder / "n.pt")
    return folder / "n.pt"


@_hostile("network")
def quantised_tensor(folder: Path) -> Path:
    weight = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
    torch.save({"0.weight": weight}, folder / "n.pt")
    return folder / "n.pt"


@_hostile("network")
def sparse_tensor_of_any_size(folder: Path) -> Path:
    weight = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (10**9, 10**9))
    torch.save({"0.weight": weight}, folder / "n.pt")
    return folder / "n.pt"


@_hostile("network")
def meta_tensor_of_any_size(folder: Path) -> Path:
    torch.save({"0.weight": torch.empty(10**9, 10**9, device="meta")}, folder / "n.pt")
    return folder / "n.pt"


@_hostile("network")
def expanded_bytes_by_encode(folder: Path) -> Path:
    text = pickle.PROTO + b"\x02" + _text("x" * 10**6) + pickle.BINPUT + b"\x01" + pickle.POP + pickle.MARK
    call = _global("_codecs", "encode") + pickle.BINGET + b"\x01" + _text("latin1") + pickle.TUPLE2 + pickle.REDUCE
    return _zipped(folder / "n.pt", text + call * 4000 + pickle.LIST + pickle.STOP)


@_hostile("network")
def ordered_dicts_of_one_list(folder: Path) -> Path:
    pairs = pickle.dumps([[i, 0] for i in range(30_000)], 2)[2:-1]
    start = pickle.PROTO + b"\x02" + pairs + pickle.LONG_BINPUT + struct.pack("<I", 10**6) + pickle.POP + pickle.MARK
    get = pickle.LONG_BINGET + struct.pack("<I", 10**6)
    call = _global("collections", "OrderedDict") + get + pickle.TUPLE1 + pickle.REDUCE
    return _zipped(folder / "n.pt", start + call * 2000 + pickle.LIST + pickle.STOP)


@_hostile("network")
def key_of_nested_tuples(folder: Path) -> Path:
    nested = pickle.EMPTY_TUPLE + pickle.TUPLE1 * 300_000
    body = pickle.EMPTY_DICT + nested + pickle.NONE + pickle.SETITEM
    return _zipped(folder / "n.pt", pickle.PROTO + b"\x02" + body + pickle.STOP)


@_hostile("network")
def checkpoint_of_dictionaries_in_each_other(folder: Path) -> Path:
    body = pickle.EMPTY_DICT
    for level in range(5):
        get = pickle.BINGET + bytes([level])
        items = b"".join(_text(f"k{i}") + get for i in range(60))
        body += pickle.BINPUT + bytes([level]) + pickle.POP + pickle.EMPTY_DICT + pickle.MARK + items + pickle.SETITEMS
    return _zipped(folder / "n.pt", pickle.PROTO + b"\x02" + body + pickle.STOP)


@_hostile("network")
def methods_replaced_by_a_state(folder: Path) -> Path:
    body = _global("collections", "OrderedDict") + pickle.EMPTY_TUPLE + pickle.REDUCE
    body += pickle.dumps({"items": 1, "get": 2}, 2)[2:-1] + pickle.BUILD
    return _zipped(folder / "n.pt", pickle.PROTO + b"\x02" + body + pickle.STOP)


@_hostile("network")
def compressed_storage(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "n.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", _state(("0.weight", _tensor((2, 2**25), (2**25, 1), 2**26))))
        with archive.open("net/data/0", "w") as record:
            for _ in range(64):
                record.write(bytes(2**22))
        archive.writestr("net/version", "3\n")
    return folder / "n.pt"


@_hostile("network")
def legacy_storage_of_any_size(folder: Path) -> Path:
    torch.save({"0.weight": torch.zeros(2, 2)}, folder / "n.pt", _use_new_zipfile_serialization=False)
    whole = (folder / "n.pt").read_bytes()
    at = whole.rindex(b"K\x04N")  # four numbers, no view
    (folder / "n.pt").write_bytes(whole[:at] + b"\x8a\x05" + (2**38).to_bytes(5, "little") + whole[at + 2 :])
    return folder / "n.pt"


@_hostile("network")
def legacy_text_of_any_length(folder: Path) -> Path:
    content = pickle.PROTO + b"\x02" + pickle.BINBYTES8 + struct.pack("<Q", 2**34) + b"x"
    (folder / "n.pt").write_bytes(content)
    return folder / "n.pt"


def _described(path: Path, key: str, text: str, **tensors: torch.Tensor) -> Path:
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()} or {"x": torch.zeros(1)}
    safetensors.torch.save_file(named, path, {key: text})
    return path


@_hostile("network")
def description_that_is_nested(folder: Path) -> Path:
    return _described(folder / "n.safetensors", "understudy", "[" * 10**5)


@_hostile("network")
def description_that_is_a_list(folder: Path) -> Path:
    return _described(folder / "n.safetensors", "understudy", "[1]")


@_hostile("network")
def description_of_a_vast_image(folder: Path) -> Path:
    stated = {"version": 1, "slope": 0.0, "image": [10**9, 10**9], "convolutions": [[1, 10**9, 0]]}
    tensors = {"layers__0__weight": torch.ones(1, 2, 1, 1, 1), "layers__1__weight": torch.ones(1, 2, 2)}
    return _described(folder / "n.safetensors", "understudy", json.dumps(stated), **tensors)


@_hostile("network")
def description_with_infinite_sides(folder: Path) -> Path:
    return _described(folder / "n.safetensors", "understudy", '{"version": 1, "slope": 1' + "0" * 400 + "}")


@_hostile("codes")
def codes_that_are_nested(folder: Path) -> Path:
    return _described(folder / "n.safetensors", "understudy-codes", "[" * 10**5)


@_hostile("codes")
def codes_with_many_layers(folder: Path) -> Path:
    encoder = {"kind": "MLP", "settings": {"sizes": [1] * 2_000_000}}
    stated = {"version": 1, "parts": dict.fromkeys(("encoder", "decoder", "infer"), encoder)}
    stated |= {"likelihood": {"name": "gaussian", "std": 1.0}, "latent": 1, "resamples": 1}
    return _described(folder / "n.safetensors", "understudy-codes", json.dumps(stated))


@_hostile("exits")
def exits_of_many_layers(folder: Path) -> Path:
    grid = {"classes": 10, "image": 32, "colours": 3, "channels": [6, 12, 24], "layers": 10**6, "exits": [10**6]}
    stated = {"version": 1, "architecture": grid, "exits": ["1"], "image_shape": [3, 32, 32], "classes": 10}
    return _described(folder / "n.safetensors", "understudy-exits", json.dumps(stated))


@_hostile("exits")
def exits_of_vast_classes(folder: Path) -> Path:
    grid = {"classes": 10**12, "image": 32, "colours": 3, "channels": [6], "layers": 2, "exits": [2]}
    stated = {"version": 1, "architecture": grid, "exits": ["1"], "image_shape": [3, 32, 32], "classes": 10**12}
    return _described(folder / "n.safetensors", "understudy-exits", json.dumps(stated))


def _npy(shape: object, descr: str = "<f4", data: bytes = b"\0" * 16) -> bytes:
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@_hostile("inputs")
def array_of_any_shape(folder: Path) -> Path:
    return _written(folder / "x.npy", _npy((10**7, 1000)))


@_hostile("inputs")
def array_of_a_shape_beyond_64_bits(folder: Path) -> Path:
    return _written(folder / "x.npy", _npy((10**30, 2)))


@_hostile("inputs")
def array_of_empty_texts(folder: Path) -> Path:
    return _written(folder / "x.npy", _npy((10**12, 2), "|S0", b""))


@_hostile("inputs")
def array_with_nested_header(folder: Path) -> Path:
    header = b"(" * 9000
    return _written(folder / "x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


@_hostile("inputs")
def compressed_array_of_zeros(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as record:
        record.write(_npy((2**16, 2**10), data=b""))
        for _ in range(64):
            record.write(bytes(2**22))
    return folder / "x.npz"


@_hostile("labels")
def labels_of_any_shape(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        archive.writestr("x.npy", _npy((2, 2)))
        archive.writestr("y.npy", _npy((10**10,)))
    return folder / "x.npz"


@_hostile("inputs")
def table_of_a_constant(folder: Path) -> Path:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2 * 10**7, np.int8)), pa.array([1.0]))
    pq.write_table(pa.table({"a": column}), folder / "x.parquet", row_group_size=2 * 10**7, compression="zstd")
    return folder / "x.parquet"


@_hostile("inputs")
def table_of_a_column_whose_statistics_are_of_another(folder: Path) -> Path:
    """The column is declared as required, and has the histogram of one with nulls: PyArrow ends the process."""
    pq.write_table(pa.table({"a": [1.0, 2.0]}), folder / "x.parquet")
    whole = (folder / "x.parquet").read_bytes()
    optional = b"\x15\x0a\x25\x02\x18\x01a"  # DOUBLE, OPTIONAL and the name a, each with its field number
    assert whole.count(optional) == 1
    return _written(folder / "x.parquet", whole.replace(optional, optional.replace(b"\x25\x02", b"\x25\x00")))


@_hostile("inputs")
def table_whose_pandas_index_is_a_number(folder: Path) -> Path:
    table = pa.table({"a": [1.0], "b": [2.0]}).replace_schema_metadata({"pandas": '{"index_columns": 5}'})
    pq.write_table(table, folder / "x.parquet")
    return folder / "x.parquet"


@_hostile("inputs")
def table_whose_pandas_index_is_nested(folder: Path) -> Path:
    text = '{"index_columns": [' + "[" * 10**5
    pq.write_table(pa.table({"a": [1.0]}).replace_schema_metadata({"pandas": text}), folder / "x.parquet")
    return folder / "x.parquet"


@_hostile("inputs")
def table_of_a_million_columns(folder: Path) -> Path:
    return _written(folder / "x.csv", b"0,1," * 500_000 + b"2\n" + b"1," * 10**6 + b"1\n")


@_hostile("images")
def picture_of_many_pixels(folder: Path) -> Path:
    Image.new("1", (13_000, 13_000)).save(folder / "x.png")
    return folder / "x.png"


@_hostile("images")
def postscript_named_png(folder: Path) -> Path:
    header = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n"
    return _written(folder / "x.png", header + b"(%pipe%id) (r) file\n%%EOF\n")


@_hostile("images")
def images_of_stride_0(folder: Path) -> Path:
    return _zipped(
        folder / "x.pt",
        pickle.PROTO + b"\x02" + _tensor((10**7, 1, 4, 4), (0, 16, 4, 1), 16) + pickle.STOP,
        {"0": bytes(64)},
    )


@_hostile("cifar")
def batch_of_repeated_encodes(folder: Path) -> Path:
    text = pickle.PROTO + b"\x02" + _text("x" * 10**6) + pickle.BINPUT + b"\x01" + pickle.POP + pickle.MARK
    call = _global("_codecs", "encode") + pickle.BINGET + b"\x01" + _text("latin1") + pickle.TUPLE2 + pickle.REDUCE
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(text + call * 4000 + pickle.LIST + pickle.STOP)
    return folder


@_hostile("cifar")
def batch_of_100_gb(folder: Path) -> Path:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        with open(folder / name, "wb") as file:
            file.truncate(10**11)
    return folder


@_hostile("network")
def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "n.pt")
    return folder / "n.pt"


@_hostile("network")
def a_device(folder: Path) -> Path:
    (folder / "n.pt").symlink_to("/dev/zero")
    return folder / "n.pt"


@_hostile("inputs")
def a_link_to_itself(folder: Path) -> Path:
    (folder / "x.npy").symlink_to(folder / "x.npy")
    return folder / "x.npy"


@_hostile("network")
def a_directory(folder: Path) -> Path:
    return folder


@_hostile("network")
def a_name_that_is_too_long(folder: Path) -> Path:
    return folder / ("n" * 5000 + ".pt")


@_hostile("inputs")
def a_name_that_is_not_text(folder: Path) -> Path:
    return _written(Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe\x1b[31m.npy")), b"damaged")


@_hostile("network")
def names_with_markup(folder: Path) -> Path:
    names = ["\x1b[31m[red]$\\frac{1}{$<a href='x'>.weight\udcff".encode("utf-8", "surrogatepass").decode("latin1")]
    state = OrderedDict((name, torch.zeros(2)) for name in names)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return _written(folder / "n.pt", buffer.getvalue())


@_hostile("norms")
def norm_that_is_a_link(folder: Path) -> Path:
    stem = "<a href='https://example.org'>bn</a>"
    parts = ("weight", "bias", "running_mean", "running_var")
    torch.save({f"{stem}.{part}": torch.ones(2) for part in parts}, folder / "n.pt")
    return folder / "n.pt"


@_hostile("norms")
def norm_that_is_a_formula(folder: Path) -> Path:
    parts = ("weight", "bias", "running_mean", "running_var")
    torch.save({f"$\\frac{{1}}{{$.{part}": torch.ones(2) for part in parts}, folder / "n.pt")
    return folder / "n.pt"


def _old_run(folder: Path) -> Path:
    """The files of a finished run that the store cannot vouch for: of two networks, without weights of students."""
    run = folder / "two-layer" / "0123456789ab"
    run.mkdir(parents=True)
    (run / "config.toml").write_text('study = "two-layer"\nformat = 1\n[options]\n', encoding="utf-8")
    tables = {"tables": ["networks", "metrics", "nodes"], "seconds": 1.0}
    (run / "environment.json").write_text(json.dumps(tables), encoding="utf-8")
    pq.write_table(pa.table({"network": pa.array([0, 1], pa.int32()), "seed": [1, 2]}), run / "networks.parquet")
    rows = {"network": pa.array([0, 1], pa.int32()), "epoch": pa.array([0, 0], pa.int32())}
    rows |= {"layer": pa.array([-1, -1], pa.int16()), "metric": ["loss", "loss"], "value": [0.5, 0.25]}
    pq.write_table(pa.table(rows), run / "metrics.parquet")
    rows = {name: pa.array([0], pa.int32()) for name in ("network", "epoch", "layer", "teacher")}
    pq.write_table(pa.table(rows | {"role": ["teacher"]}), run / "nodes.parquet")
    safetensors.torch.save_file({"teacher.0.seeds": torch.zeros(1)}, run / "weights.safetensors", {"slopes": "{}"})
    (run / "claims.json").write_text("[]", encoding="utf-8")
    (run / "report.html").write_text("<p></p>", encoding="utf-8")
    return run


def _damaged_run(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (_old_run(folder) / name).write_bytes(content)
        return folder

    return make


for _name, _file, _content in (
    ("claims_that_are_a_number", "claims.json", b"5"),
    ("claims_without_fields", "claims.json", b'[{"id": "T1"}]'),
    ("claims_of_other_types", "claims.json", b'[{"id": 1, "statement": 2}]'),
    ("claims_that_are_nested", "claims.json", b"[" * 10**5),
    ("environment_that_is_a_list", "environment.json", b"[1]"),
    ("environment_with_paths", "environment.json", b'{"tables": ["../../x"]}'),
    ("environment_that_is_not_text", "environment.json", b"\xff\xfe"),
    ("configuration_that_is_nested", "config.toml", b"a = " + b"[" * 10**5),
    ("configuration_without_options", "config.toml", b'study = "two-layer"\n'),
    ("configuration_with_a_number_as_study", "config.toml", b"study = [1]\n[options]\n"),
    ("groups_that_are_a_text", "groups.json", b'"x"'),
    ("table_that_is_cut", "metrics.parquet", b"PAR1"),
    ("headline_that_is_not_text", "headline.txt", b"\xff\xfe"),
    ("weights_that_are_cut", "weights.safetensors", b"\x08\0\0\0\0\0\0\0{"),
):
    HOSTILE[_name] = ("runs", _damaged_run(_file, _content))
