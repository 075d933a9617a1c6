"""Records of the computed pieces of a run: which files each has, with their checksums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy._atomic import write_json
from understudy._errors import UserError
from understudy._reading import read_json
from understudy._states import checksum_of_file, checksum_of_values


class PieceRecords:
    """Records in `progress/`, one for each piece, which is written after the files of the piece.

    Args:
        run: Name of the run folder.
        progress: The folder of the pieces.
    """

    def __init__(self, run: str, progress: Path) -> None:
        self._run, self._progress = run, progress
        self.known: dict[int, dict[str, Any]] = {}
        """Records that were read or written, by the number of the piece."""

    def write(self, number: int, name: str, tables: Sequence[str], files: Sequence[str]) -> None:
        """Record a piece, whose files are written."""
        sums = {file: checksum_of_file(self._progress / file) for file in files}
        record = {"run": self._run, "number": number, "name": name, "tables": list(tables), "files": sums}
        write_json(self._path(number), record | {"checksum": checksum_of_values(record)})
        self.known[number] = record

    def problem(self, number: int, name: str) -> str | None:
        """Verify a piece.

        Args:
            number: Its number.
            name: Its name.

        Returns:
            None if it was computed and all its files are whole; else what is wrong, empty if it was not computed.
        """
        path = self._path(number)
        if not path.exists():
            return ""
        try:
            record = read_json(path, "it is computed again")
        except UserError as error:
            return str(error).rpartition(";")[0]
        if not isinstance(record, dict) or record.pop("checksum", None) != checksum_of_values(record):
            return f"{path} cannot be read (its contents do not match its checksum)"
        if (record["run"], record["number"], record["name"]) != (self._run, number, name):
            return f"{path} is of another run or piece"
        for file, checksum in record["files"].items():
            part = self._progress / file
            if not part.is_file():
                return f"{part} is missing"
            if checksum_of_file(part) != checksum:
                return f"{part} cannot be read (its contents do not match its checksum)"
        self.known[number] = record
        return None

    def _path(self, number: int) -> Path:
        return self._progress / f"piece-{number:06}.json"
