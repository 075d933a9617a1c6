"""Server that reads files with little memory: each line on standard input is JSON, [reader, path].

It prints one line of JSON for each: "refused" for a `UserError`, the name and message of another exception, or "read"
with a hash of the result; with the seconds and the MiB that it took. Readers run in a child, forked from a process that
has imported everything, which may allocate 1.5 GiB: what asks for more fails, and does not take the machine.
"""

import hashlib
import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import understudy as us
from understudy import nets
from understudy._errors import UserError
from understudy.data.image_files import read_images
from understudy.data.input_files import read_inputs, read_labels
from understudy.data.text.text_files import read_lines
from understudy.nets.files.io import read_tensors
from understudy.nets.latent.files import load_codes
from understudy.nets.multi_exit.files import load_exits
from understudy.store import Run

_MEMORY = 3 * 2**29
_SECONDS = 30


def _read_run(path: Path) -> object:
    run = Run(path)
    run.require_sound()
    tables = [run.table(name).to_pydict() for name in run.tables]
    weights = [[*each.layers, *each.norms] for name in run._contents.saved for each in run.weights(name)]
    return [run.options, run.groups, [str(claim) for claim in run.claims], tables, weights]


def _list_runs(path: Path) -> object:
    from understudy.lab.finished_runs import finished_runs

    return [run.folder.name for run in finished_runs(path)]


READERS = {
    "network": lambda path: nets.read(path).population,
    "tensors": read_tensors,
    "norms": us.nets.bn_biases,
    "inputs": read_inputs,
    "labels": read_labels,
    "images": lambda path: read_images(path, (1, 4, 4)),
    "text": read_lines,
    "codes": lambda path: load_codes(path).model,
    "exits": lambda path: load_exits(path).network,
    "cifar": lambda path: us.data.Cifar10(path)._stored(),
    "run": _read_run,
    "runs": _list_runs,
}


def _plain(value: object) -> object:
    """What a result consists of, for its hash."""
    if isinstance(value, nn.Module):
        return _plain(value.state_dict())
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().contiguous().flatten().view(torch.uint8).tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, nets.Population):
        return _plain([value.layers, value.norms, value.slope, value.seeds])
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return repr(value)


def _read(reader: str, path: str) -> dict[str, object]:
    start = time.monotonic()
    try:
        found = READERS[reader](Path(os.fsdecode(path.encode("utf-8", "surrogateescape"))))
        result = {"read": hashlib.sha256(repr(_plain(found)).encode("utf-8", "backslashreplace")).hexdigest()}
    except UserError as error:
        result = {"refused": str(error)}
    except BaseException as error:
        result = {"failed": f"{type(error).__name__}: {error}"[:500]}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result | {"seconds": round(time.monotonic() - start, 2), "MiB": round(peak)}


def _forked(reader: str, path: str) -> dict[str, object]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.alarm(_SECONDS)
        warnings.simplefilter("ignore")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        torch.set_num_threads(1)
        os.write(write_end, json.dumps(_read(reader, path)).encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as source:
        found = source.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(found) if found else {"failed": f"ended with status {status}"}


def main() -> None:
    import pyarrow.parquet  # noqa: F401, once for all children
    from PIL import Image  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_forked(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
