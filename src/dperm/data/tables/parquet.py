"""Parquet files, read in blocks of rows: :class:`ParquetTable` is ``X`` for a fit without loading the files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.frames import arrow_numbers
from dperm.data.tables.raw_columns import arrow_kind
from dperm.data.tables.row_source import RowSource, rows_per_block
from dperm.errors import InvalidData, InvalidInput, MissingDependency

__all__ = ["ParquetTable", "parquet_files"]

_MOST_SHOWN = 8
_ENDINGS = (".parquet", ".pq")
_READ_AHEAD = 1 << 18  # bytes per column; whole row groups may be larger than memory


class ParquetTable(RowSource):
    """Columns of a Parquet file, of several, or of a folder of them, to be used as ``X`` without loading it.

    Needs pyarrow. The files must have the same columns of the same types. Their rows follow one another in the order
    of the files; the files of a folder are sorted by name.

    Parameters
    ----------
    path : path, or sequence of paths
        A file, a folder of Parquet files and nothing else, or several files.
    columns : sequence of str, optional
        Which columns, in this order; all by default.

    Examples
    --------
    ``people = ParquetTable("people.parquet")``, then ``model.fit(people.drop("outcome"), people["outcome"])``.
    """

    def __init__(
        self, path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], columns: Sequence[str] | None = None
    ) -> None:
        self._paths, self._shown = _files(path)
        opened = [_open(one) for one in self._paths]
        schema = opened[0].schema_arrow
        for one, file in zip(self._paths, opened, strict=True):
            if list(file.schema_arrow.names) != list(schema.names):
                raise InvalidData(
                    f"{one.name!r} has different columns from {self._paths[0].name!r}: all files need the same columns."
                )
        known = list(schema.names)
        wanted = known if columns is None else list(columns)
        if isinstance(columns, str) or len(set(wanted)) < len(wanted):
            raise InvalidInput("columns must be a list of distinct names.")
        for name in wanted:
            if name not in known:
                raise InvalidInput(f"{self._paths[0].name!r} has no column {name!r}.")
            # the types are public only if they hold for all rows
            for one, file in zip(self._paths, opened, strict=True):
                if arrow_kind(file.schema_arrow.field(name).type) != arrow_kind(schema.field(name).type):
                    raise InvalidData(
                        f"column {name!r} has different types in {one.name!r} and {self._paths[0].name!r}: convert it "
                        "to the same type in all files."
                    )
        self.names = wanted
        self.shape = (sum(file.metadata.num_rows for file in opened), len(wanted))
        flags = np.array([str(schema.field(name).type) == "bool" for name in wanted], bool)
        self.boolean = flags if flags.any() else None
        for file in opened:
            file.close()

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        assert self.names is not None
        return list(self.names)

    def drop(self, *names: str | Sequence[str]) -> ParquetTable:
        """Return the table without some columns, such as the target; names, or lists of them."""
        left_out = [one for given in names for one in ([given] if isinstance(given, str) else given)]
        self._check_names(left_out)
        return self._selected([name for name in self.columns if name not in left_out])

    def _selected(self, names: list[str]) -> ParquetTable:
        made = ParquetTable(self._paths, names)
        made._shown = self._shown
        return made

    def _check_names(self, names: Iterable[Any]) -> None:
        for name in names:
            if name not in self.columns:
                raise InvalidInput(f"there is no column {name!r}; the columns are {_shown(self.columns)}.")

    @overload
    def __getitem__(self, name: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, name: list[str]) -> ParquetTable: ...
    def __getitem__(self, name: str | list[str]) -> NDArray[Any] | ParquetTable:
        """Return one column as an array in memory, as a target needs, or the table of a list of columns."""
        if isinstance(name, list):
            self._check_names(name)
            return self._selected(name)
        if not isinstance(name, str):
            raise InvalidInput("select columns by a name or by a list of names.")
        self._check_names([name])
        return np.concatenate(
            [np.asarray(batch.column(0)) for batch in self._batches([name], 1 << 16)] or [np.zeros(0)]
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ParquetTable({self._shown}, {self.shape[0]} rows, {self.shape[1]} columns)"

    def _parts(self) -> Iterator[NDArray[Any]]:
        for batch in self._batches(self.columns, rows_per_block(self.shape[1])):
            yield arrow_numbers(batch.select(self.columns))  # batches have the columns in the order of the file

    def _batches(self, columns: list[str], size: int) -> Iterator[Any]:
        for path in self._paths:
            file = _open(path)
            with file:
                # without threads no more than one batch is decoded at a time
                yield from file.iter_batches(batch_size=size, columns=columns, use_threads=False)


def _shown(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MOST_SHOWN])
    return shown if len(names) <= _MOST_SHOWN else f"{shown} and {len(names) - _MOST_SHOWN} more"


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder in the order of their names; anything else in it is refused.

    Leaving something out would leave people out. Names that begin with a dot or an underscore are notes of other
    programs, such as ``_SUCCESS``.
    """
    found = sorted(one for one in folder.iterdir() if not one.name.startswith((".", "_")))
    for one in found:
        if one.is_dir() or one.suffix.lower() not in _ENDINGS:
            raise InvalidInput(
                f"{str(folder)!r} is a folder that holds {one.name!r}, which is no Parquet file and would be left out: "
                "move it elsewhere."
            )
    if not found:
        raise InvalidInput(f"{str(folder)!r} is a folder that holds no Parquet file: give a file, or a folder of them.")
    return found


def _files(path: Any) -> tuple[list[Path], str]:
    """Return the files to read, and the name of what was given."""
    if isinstance(path, str | os.PathLike):
        one = Path(path)
        return (parquet_files(one) if one.is_dir() else [one]), repr(one.resolve().name)
    files = [Path(each) for each in path]
    if not files:
        raise InvalidInput("there is no Parquet file to read: give a file, or a folder with *.parquet files.")
    return files, repr(files[0].name) + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _open(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDependency("Parquet files need pyarrow: install dperm[parquet].") from None
    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_AHEAD)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "not a Parquet file"
        raise InvalidInput(f"{path.name!r} cannot be read: {why}.") from None
    except pa.ArrowInvalid:
        raise InvalidInput(f"{path.name!r} cannot be read: not a Parquet file.") from None
