"""Input files: matrices are read as stored, everything else is rejected with a message."""

import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.data.input_files import read_inputs

ENDINGS = ".npy, .npz, .parquet, .csv"


def matrix(samples: int, inputs: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(samples).normal(0, 20, (samples, inputs)).astype(dtype)


def table(path: Path, columns: dict[str, object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def write(path: Path, values: np.ndarray, lists: bool = False) -> None:
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez_compressed(path, inputs=values)
    elif lists:
        table(path, {"inputs": pa.array(list(values))})
    else:
        table(path, {f"c{i}": column for i, column in enumerate(values.T)})


def refusal(path: Path, *words: str, name: str | None = None) -> str:
    """Return the error message, which must name the file and end with a full stop."""
    with pytest.raises(UserError) as caught:
        read_inputs(path, name=name)
    text = str(caught.value)
    for word in (path.name, *words):
        assert word in text, text
    assert text.endswith("."), text
    return text


class TestRead:
    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(["x.npy", "x.npz", "x.parquet", "X.NPY"]),
        st.integers(1, 6),
        st.integers(1, 5),
        st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int64", "uint64", "bool"]),
        st.booleans(),
    )
    def test_as_stored(self, name, samples, inputs, dtype, lists):
        values = np.abs(matrix(samples, inputs)).astype(dtype)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path.with_suffix(path.suffix.lower()), values, lists)
            path.with_suffix(path.suffix.lower()).rename(path)
            read = read_inputs(path)
        assert read.dtype == (torch.float64 if dtype == "float64" else torch.float32)
        assert read.is_contiguous()
        assert np.array_equal(read.numpy(), values.astype(read.numpy().dtype))

    @pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2"])
    def test_other_byte_order(self, tmp_path, dtype):
        np.save(tmp_path / "x.npy", matrix(3, 2).astype(dtype))
        assert np.array_equal(read_inputs(tmp_path / "x.npy").numpy(), matrix(3, 2).astype(dtype))

    def test_columns_first(self, tmp_path):
        np.save(tmp_path / "x.npy", np.asfortranarray(matrix(3, 2)))
        read = read_inputs(tmp_path / "x.npy")
        assert read.is_contiguous() and np.array_equal(read.numpy(), matrix(3, 2))

    def test_wider_than_float64(self, tmp_path):
        np.save(tmp_path / "x.npy", np.full((2, 2), 1.5, np.longdouble))
        assert read_inputs(tmp_path / "x.npy").dtype == torch.float64

    def test_samples_of_more_axes_are_flattened(self, tmp_path):
        images = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        np.save(tmp_path / "x.npy", images)
        assert np.array_equal(read_inputs(tmp_path / "x.npy").numpy(), images.reshape(2, 60))

    @pytest.mark.parametrize("image", [(3, 4, 5), (1, 4, 5), (4, 1, 5)])
    def test_images_of_the_requested_channels_height_and_width(self, tmp_path, image):
        pictures = np.arange(2 * np.prod(image)).reshape(2, *image)
        for shape in ((2, *image), (2, -1), (2, *(side for side in image if side != 1))):
            np.save(tmp_path / "x.npy", pictures.reshape(shape))
            assert np.array_equal(read_inputs(tmp_path / "x.npy", image=image).numpy(), pictures.reshape(2, -1))

    def test_images_with_channels_last_are_rejected(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((2, 4, 5, 3)))
        words = r"shape \[samples, 3, 4, 5\], .* got \(2, 4, 5, 3\); .*transpose\(0, 3, 1, 2\)"
        with pytest.raises(UserError, match=words):
            read_inputs(tmp_path / "x.npy", image=(3, 4, 5))

    def test_which_array(self, tmp_path):
        np.savez(tmp_path / "x.npz", x=np.ones((2, 3)), y=np.zeros((4, 1)))
        assert read_inputs(tmp_path / "x.npz").shape == (2, 3)
        assert read_inputs(tmp_path / "x.npz", name="y").shape == (4, 1)

    def test_which_column(self, tmp_path):
        table(tmp_path / "x.parquet", {"id": ["a", "b"], "inputs": [[1.0, 2.0], [3.0, 4.0]], "age": [3, 4]})
        assert read_inputs(tmp_path / "x.parquet", name="inputs").tolist() == [[1, 2], [3, 4]]
        assert read_inputs(tmp_path / "x.parquet", name="age").tolist() == [[3], [4]]

    def test_columns_of_different_kinds_take_the_widest(self, tmp_path):
        table(tmp_path / "x.parquet", {"a": pa.array([2**40 + 1], pa.int64()), "b": pa.array([0.1], pa.float64())})
        assert read_inputs(tmp_path / "x.parquet").tolist() == [[2**40 + 1, 0.1]]

    @pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.int8()), pa.list_(pa.float64(), 2)])
    def test_kinds_of_lists(self, tmp_path, kind):
        table(tmp_path / "x.parquet", {"inputs": pa.array([[1, 2], [3, 4], [5, 6]], kind)})
        assert read_inputs(tmp_path / "x.parquet").tolist() == [[1, 2], [3, 4], [5, 6]]

    def test_index_of_pandas_is_ignored(self, tmp_path):
        stored = pa.table({"a": [1.0, 2.0], "__index_level_0__": [10, 20]})
        stored = stored.replace_schema_metadata({"pandas": json.dumps({"index_columns": ["__index_level_0__"]})})
        pq.write_table(stored, tmp_path / "x.parquet")
        assert read_inputs(tmp_path / "x.parquet").tolist() == [[1], [2]]

    def test_folder_names_are_ignored(self, tmp_path):
        (tmp_path / "fold=3").mkdir()
        table(tmp_path / "fold=3" / "x.parquet", {"a": [1.0]})
        assert read_inputs(tmp_path / "fold=3" / "x.parquet").shape == (1, 1)

    def test_headers_of_python_2_do_not_warn(self, tmp_path):
        np.save(tmp_path / "x.npy", matrix(3, 2))
        data = (tmp_path / "x.npy").read_bytes().replace(b"(3, 2), }  ", b"(3L, 2L), }")
        (tmp_path / "x.npy").write_bytes(data)
        assert read_inputs(tmp_path / "x.npy").shape == (3, 2)


class TestCsv:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 6), st.integers(1, 5), st.booleans(), st.booleans())
    def test_every_digit_with_and_without_names_and_index(self, samples, inputs, named, index):
        values = matrix(samples, inputs, "float64")
        names = [f"c{i}" for i in range(inputs)]
        rows = [*([names] if named or index else []), *([repr(v) for v in row] for row in values.tolist())]
        if index:
            rows = [["", *rows[0]], *([f"row {i}", *row] for i, row in enumerate(rows[1:]))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.csv")
            path.write_text("".join(",".join(row) + "\n" for row in rows))
            read = read_inputs(path)
            assert read.dtype == torch.float64 and np.array_equal(read.numpy(), values)
            if named or index:
                assert np.array_equal(read_inputs(path, name="c0").numpy(), values[:, :1])

    def test_as_pandas_writes_frames(self, tmp_path):
        pd = pytest.importorskip("pandas")
        values = matrix(4, 3, "float64")
        for index in (True, False):
            pd.DataFrame(values).to_csv(tmp_path / "x.csv", index=index)
            assert np.array_equal(read_inputs(tmp_path / "x.csv").numpy(), values)

    def test_as_numpy_writes_arrays(self, tmp_path):
        np.savetxt(tmp_path / "x.csv", matrix(4, 3), delimiter=",", fmt="%.17g")
        assert np.array_equal(read_inputs(tmp_path / "x.csv").numpy(), matrix(4, 3, "float64").astype("float32"))

    def test_fractions_after_a_megabyte_of_integers(self, tmp_path):
        (tmp_path / "x.csv").write_text("1,2\n" * 300_000 + "0.5,2\n")
        assert read_inputs(tmp_path / "x.csv")[-1].tolist() == [0.5, 2]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("a,b\n1,x\n", "'x'"),
            ("a;b\n1;2\n", "separated by commas"),
            ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
            ("a,b\n1,\n", "'b' has 1 null values"),
            ("1,2\n3,inf\n", "finite"),
            ("a,b\n", "at least one sample"),
        ],
    )
    def test_refused(self, tmp_path, text, words):
        (tmp_path / "x.csv").write_text(text)
        refusal(tmp_path / "x.csv", words)

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "x.csv").write_bytes(bytes(range(128, 256)) * 10)
        refusal(tmp_path / "x.csv", "separated by commas")


class TestNotAFile:
    def test_missing(self, tmp_path):
        refusal(tmp_path / "absent.npy", "no such file", ENDINGS, "check the path")

    def test_directory(self, tmp_path):
        (tmp_path / "folder.npy").mkdir()
        refusal(tmp_path / "folder.npy", "directory", ENDINGS, "name a file in it")

    @pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".csv"])
    def test_empty(self, tmp_path, ending):
        (tmp_path / f"x{ending}").touch()
        refusal(tmp_path / f"x{ending}", "empty", "0 bytes", "again")

    @pytest.mark.parametrize(("name", "shown"), [("x.tsv", "got .tsv"), ("x", "got none"), ("x.pt", "got .pt")])
    def test_unknown_suffix(self, tmp_path, name, shown):
        (tmp_path / name).write_text("1, 2\n")
        refusal(tmp_path / name, shown, ENDINGS, "numpy.save")


class TestDamaged:
    @settings(max_examples=120, deadline=None)
    @given(st.sampled_from(["x.npy", "x.npz", "x.parquet"]), st.floats(0, 1))
    def test_cut_anywhere(self, name, share):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path, matrix(20, 3))
            whole = path.read_bytes()
            kept = round(share * len(whole))
            path.write_bytes(whole[:kept])
            if kept == len(whole):
                assert read_inputs(path).shape == (20, 3)
            else:
                refusal(path)

    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from(["x.npy", "x.npz"]), st.data())
    def test_changed_anywhere(self, name, data):
        """A changed byte gives other numbers or a UserError, never another exception."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path, matrix(20, 3))
            whole = bytearray(path.read_bytes())
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
            path.write_bytes(whole)
            try:
                read_inputs(path)
            except UserError as error:
                assert name in str(error)

    @pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
    def test_the_message_names_the_damage(self, tmp_path, name):
        write(tmp_path / name, matrix(20, 3))
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) - 10])
        refusal(tmp_path / name, "truncated", "damaged", "again")

    @pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
    def test_another_format_with_this_suffix(self, tmp_path, name):
        (tmp_path / name).write_text("these are words, and no numbers at all")
        refusal(tmp_path / name, "truncated, damaged or not", "again")


class TestObjects:
    def test_array_of_objects(self, tmp_path):
        np.save(tmp_path / "x.npy", np.array([[1, "a"]], dtype=object), allow_pickle=True)
        refusal(tmp_path / "x.npy", "Python objects", "never read", "array of numbers")

    def test_array_of_objects_in_npz(self, tmp_path):
        np.savez(tmp_path / "x.npz", x=np.array([[1, "a"]], dtype=object))
        refusal(tmp_path / "x.npz", "Python objects", "never read", "array of numbers")

    def test_no_code_runs(self, tmp_path):
        class Mischief:
            def __reduce__(self):
                return Path.touch, (tmp_path / "created",)

        (tmp_path / "x.npy").write_bytes(pickle.dumps(Mischief()))
        refusal(tmp_path / "x.npy", "Python objects", "never read")
        np.save(tmp_path / "y.npy", np.array([Mischief()], dtype=object), allow_pickle=True)
        refusal(tmp_path / "y.npy", "Python objects", "never read")
        assert not (tmp_path / "created").exists()


class TestNotAMatrix:
    @pytest.mark.parametrize("shape", [(5,), ()])
    def test_too_few_axes(self, tmp_path, shape):
        np.save(tmp_path / "x.npy", np.ones(shape))
        refusal(tmp_path / "x.npy", f"{len(shape)}-D", str(shape), "2-D [samples, inputs]", "reshape")

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
    def test_empty_arrays(self, tmp_path, shape):
        np.save(tmp_path / "x.npy", np.ones(shape))
        refusal(tmp_path / "x.npy", str(shape), "at least one sample")

    def test_no_rows(self, tmp_path):
        refusal(table(tmp_path / "x.parquet", {"a": pa.array([], pa.float32())}), "(0, 1)", "at least one sample")
        refusal(table(tmp_path / "y.parquet", {"a": pa.array([], pa.list_(pa.float32()))}), "at least one sample")

    @pytest.mark.parametrize("values", [np.array([["a"]]), np.ones((1, 1), complex), np.ones((1, 1), "M8[s]")])
    def test_other_values(self, tmp_path, values):
        np.save(tmp_path / "x.npy", values)
        refusal(tmp_path / "x.npy", str(values.dtype), "real numbers")

    @pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, tmp_path, name, bad):
        values = matrix(6, 3)
        values[4, 1] = values[2] = bad
        write(tmp_path / name, values)
        refusal(tmp_path / name, "4 of 18", "NaN or infinite", "first in row 2", "must be finite")


class TestChoiceOfArray:
    def test_several(self, tmp_path):
        np.savez(tmp_path / "x.npz", train=np.ones((1, 1)), test=np.ones((1, 1)))
        refusal(tmp_path / "x.npz", "arrays train, test", "one named x")

    def test_an_array_that_does_not_exist(self, tmp_path):
        np.savez(tmp_path / "x.npz", train=np.ones((1, 1)), x=np.ones((1, 1)))
        refusal(tmp_path / "x.npz", "'valid'", "arrays train, x", name="valid")

    def test_none(self, tmp_path):
        np.savez(tmp_path / "x.npz")
        refusal(tmp_path / "x.npz", "no arrays")

    def test_npy_has_no_names(self, tmp_path):
        np.save(tmp_path / "x.npy", matrix(2, 2))
        refusal(tmp_path / "x.npy", "'x'", "one array without a name", name="x")


class TestColumns:
    def test_not_numeric(self, tmp_path):
        path = table(tmp_path / "x.parquet", {"a": [1.0], "who": ["me"], "day": pa.array([0], pa.date32())})
        text = refusal(path, "'who' (string)", "'day' (date32[day])", "must be numeric", "drop or encode")
        assert "'a'" not in text

    def test_lists_beside_numbers(self, tmp_path):
        refusal(
            table(tmp_path / "x.parquet", {"a": [1.0], "b": [[1.0]]}),
            "'b' (list<",
            "must contain lists of numbers",
        )

    def test_lists_of_words(self, tmp_path):
        refusal(table(tmp_path / "x.parquet", {"b": [["a"]]}), "'b' (list<", "must contain lists of numbers")

    def test_lists_of_different_lengths(self, tmp_path):
        path = table(tmp_path / "x.parquet", {"b": [[1.0], [1.0, 2.0, 3.0]]})
        refusal(path, "'b'", "equal lengths", "1 to 3 values")

    @pytest.mark.parametrize("values", [[1.0, None, None], [[1.0], None, None], [None, None, 3]])
    def test_nulls(self, tmp_path, values):
        path = table(tmp_path / "x.parquet", {"a": [1, 2, 3], "b": values})
        refusal(path, "'b'", "2 null values in 3 rows", "fill or drop")

    def test_nulls_in_lists(self, tmp_path):
        refusal(table(tmp_path / "x.parquet", {"b": [[1.0, None], [2.0, 3.0]]}), "'b'", "1 null values", "fill or drop")

    def test_no_columns(self, tmp_path):
        refusal(table(tmp_path / "x.parquet", {}), "at least one input is needed")

    def test_a_column_that_does_not_exist(self, tmp_path):
        refusal(table(tmp_path / "x.parquet", {"a": [1.0], "b": [2.0]}), "a, b", "'c' is needed", name="c")
