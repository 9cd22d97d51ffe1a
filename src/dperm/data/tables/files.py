"""Tables in files: CSV, Parquet and Feather, read in chunks of rows so that a file is never in memory twice.

A chunk is one array of doubles or one list of texts per column (see :mod:`dperm.data.tables.raw_columns`). CSV needs
only Python's standard library; Parquet and Feather need pyarrow, which is imported when such a file is opened. Error
messages name files and columns, never a row or a value.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from dperm.data.tables.parquet import parquet_files
from dperm.data.tables.raw_columns import BOOLEAN, NUMBER, TEXT, RawColumn, arrow_column, arrow_kind
from dperm.errors import InvalidData, InvalidInput, MissingDependency

__all__ = ["FORMATS", "TableFile", "TablePiece", "name_without_suffix", "open_table"]

_CHUNK_ROWS = 65_536
_DELIMITERS = ",;\t|"

#: suffixes of the files that can be read
FORMATS = (".csv", ".tsv", ".txt", ".csv.gz", ".parquet", ".pq", ".feather", ".arrow")


class TableFile(ABC):
    """A table in a file; its column names and types are public (CSV has no types), its values are not."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = tuple(names)
        blank = [name for name in names if not name.strip()]
        if blank:
            raise InvalidData(f"{path.name} has a column without a name: give every column a name in the first line.")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidData(f"{path.name} has two columns named {twice!r}: rename one.")

    #: whether the types of columns are part of the file, so that a kind need not be guessed from values
    typed = True

    @abstractmethod
    def kind(self, name: str) -> str:
        """Return the kind of a column by its type: number, boolean, text, date or other."""

    def has_numeric_categories(self, name: str) -> bool:
        """Whether a column's numbers are categories by its type, such as a pandas category of numbers."""
        return False

    @abstractmethod
    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
        """Yield the named columns, some rows at a time."""

    def contents(self) -> Iterator[dict[str, RawColumn]]:
        """Yield all columns, some rows at a time, as doubles or texts whatever their type; to compare whole tables."""
        yield from self.chunks(self.names)

    @abstractmethod
    def approximate_rows(self) -> int:
        """Return the number of rows, exact or estimated from the size of the file."""

    def pieces(self) -> list[TablePiece]:
        """Return the parts of the table that can be read on their own, in their order."""
        return [TablePiece(str(self.path.resolve()))]

    def require(self, names: Sequence[str]) -> None:
        """Refuse names that the file does not have."""
        for name in names:
            if name not in self.names:
                raise InvalidData(f"{self.path.name} has no column {name!r}: it has {_listed(self.names)}.")


@dataclass(frozen=True)
class TablePiece:
    """Where a part of a table is: a file, or a row group of a Parquet file."""

    path: str
    group: int | None = None
    #: number of its rows if the file states it
    n_rows: int | None = None

    def open(self) -> TableFile:
        """Open it, as a table of its own; this may be another machine than the one that found it."""
        table = _opened_elsewhere(Path(self.path))
        if self.group is not None and isinstance(table, _ParquetFile):
            table.groups = [self.group]
        return table


class _CsvFile(TableFile):
    typed = False

    def __init__(self, path: Path) -> None:
        # a quoted name may contain separators and line ends, so the header is parsed with each separator
        with _readable_errors(path):
            headers = {one: self._header(path, one) for one in _DELIMITERS}
        self._delimiter = max(_DELIMITERS, key=lambda one: len(headers[one]))
        header = headers[self._delimiter]
        if not any(name.strip() for name in header):
            raise InvalidData(f"{path.name} is empty: it needs a line of column names, then one line per person.")
        super().__init__(path, [name.strip() for name in header])

    @classmethod
    def _header(cls, path: Path, delimiter: str) -> list[str]:
        with cls._text(path) as lines:
            return next(csv.reader(lines, delimiter=delimiter), [])

    @staticmethod
    def _text(path: Path) -> TextIO:
        if path.name.lower().endswith(".gz"):
            return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")

    def kind(self, name: str) -> str:
        return TEXT

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
        self.require(names)
        places = [(name, self.names.index(name)) for name in names]
        width = len(self.names)
        with _readable_errors(self.path), self._text(self.path) as lines:
            reader = csv.reader(lines, delimiter=self._delimiter)
            next(reader, None)
            while rows := self._read_rows(reader, width):
                columns = list(zip(*rows, strict=True))
                yield {name: list(columns[place]) for name, place in places}

    def _read_rows(self, reader: Iterator[list[str]], width: int) -> list[list[str]]:
        rows: list[list[str]] = []
        for row in reader:
            if len(row) != width:
                if not row or (len(row) == 1 and not row[0].strip()):  # an empty line
                    continue
                raise InvalidData(
                    f"{self.path.name} has a line with more or fewer fields than its first line: put texts that "
                    "contain the separator in double quotes."
                )
            rows.append(row)
            if len(rows) == _CHUNK_ROWS:
                break
        return rows

    def approximate_rows(self) -> int:
        size = self.path.stat().st_size
        with self.path.open("rb") as stream:
            head = stream.read(1 << 20)
        lines = max(head.count(b"\n"), 1)
        return lines if len(head) >= size else round(size * lines / len(head))


class _ArrowFile(TableFile):
    def __init__(self, path: Path) -> None:
        _need_pyarrow(path)
        with _readable_errors(path):
            self._source, schema = self._open(path)
        self._types = {field.name: field.type for field in schema}
        super().__init__(path, list(schema.names))

    @abstractmethod
    def _open(self, path: Path) -> tuple[Any, Any]:
        """Return a reader and its schema."""

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of the named columns."""

    def kind(self, name: str) -> str:
        return arrow_kind(self._types[name])

    def has_numeric_categories(self, name: str) -> bool:
        import pyarrow as pa

        return self.kind(name) == NUMBER and bool(pa.types.is_dictionary(self._original_types().get(name, pa.null())))

    def _original_types(self) -> dict[str, Any]:
        """Types of the table from which the file was written."""
        return self._types

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
        self.require(names)
        with _readable_errors(self.path):
            for batch in self._batches(names):
                if batch.num_rows:
                    yield {name: arrow_column(batch.column(name)) for name in names}

    def contents(self) -> Iterator[dict[str, RawColumn]]:
        with _readable_errors(self.path):
            for batch in self._batches(self.names):
                if batch.num_rows:
                    yield {name: _as_doubles_or_texts(batch.column(name)) for name in self.names}


def _as_doubles_or_texts(column: Any) -> RawColumn:
    """Return an Arrow column as doubles or texts; dates and other types in the letters that Arrow writes to CSV."""
    if arrow_kind(column.type) in (NUMBER, BOOLEAN, TEXT):
        return arrow_column(column)
    return [None if cell is None else str(cell) for cell in column.to_pylist()]


class _ParquetFile(_ArrowFile):
    #: the row groups that are read; None for all
    groups: list[int] | None = None

    def pieces(self) -> list[TablePiece]:
        path, metadata = str(self.path.resolve()), self._source.metadata
        sizes = [int(metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]
        return [TablePiece(path, group, n_rows) for group, n_rows in enumerate(sizes)]

    def _open(self, path: Path) -> tuple[Any, Any]:
        import pyarrow.parquet as pq

        reader = pq.ParquetFile(path)
        return reader, reader.schema_arrow

    def _original_types(self) -> dict[str, Any]:
        import pyarrow as pa

        # Parquet stores categories by value; the original types are in the metadata if Arrow wrote the file
        encoded = (self._source.metadata.metadata or {}).get(b"ARROW:schema", b"")
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
        except (ValueError, OSError, pa.ArrowException):
            return self._types
        return {field.name: field.type for field in schema}

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        yield from self._source.iter_batches(batch_size=_CHUNK_ROWS, columns=list(names), row_groups=self.groups)

    def approximate_rows(self) -> int:
        return int(self._source.metadata.num_rows)


class _ParquetFolder(TableFile):
    """All Parquet files of a folder, in the order of their names."""

    def __init__(self, path: Path) -> None:
        self._files = [_ParquetFile(one) for one in parquet_files(path)]
        super().__init__(path, self._files[0].names)
        for file in self._files[1:]:
            if sorted(file.names) != sorted(self.names):
                raise InvalidData(
                    f"{file.path.name!r} has different columns from {self._files[0].path.name!r}: all files need the "
                    "same columns."
                )
            for name in self.names:
                if file.kind(name) != self.kind(name):
                    raise InvalidData(
                        f"column {name!r} has different types in {file.path.name!r} and "
                        f"{self._files[0].path.name!r}: convert it to the same type in all files."
                    )

    def kind(self, name: str) -> str:
        return self._files[0].kind(name)

    def has_numeric_categories(self, name: str) -> bool:
        return any(file.has_numeric_categories(name) for file in self._files)

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
        self.require(names)
        for file in self._files:
            yield from file.chunks(names)

    def contents(self) -> Iterator[dict[str, RawColumn]]:
        for file in self._files:
            yield from file.contents()

    def approximate_rows(self) -> int:
        return sum(file.approximate_rows() for file in self._files)

    def pieces(self) -> list[TablePiece]:
        return [piece for file in self._files for piece in file.pieces()]


class _FeatherFile(_ArrowFile):
    def _open(self, path: Path) -> tuple[Any, Any]:
        import pyarrow as pa

        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return reader, reader.schema

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        for i in range(self._source.num_record_batches):
            yield self._source.get_batch(i).select(list(names))

    def approximate_rows(self) -> int:
        return sum(self._source.get_batch(i).num_rows for i in range(self._source.num_record_batches))


def open_table(path: str | os.PathLike[str]) -> TableFile:
    """Open a file according to the suffix of its name, or a folder of Parquet files; reads names and types only."""
    where = Path(path)
    name = where.name.lower()
    if where.is_dir():
        _need_pyarrow(where)
        return _ParquetFolder(where)
    if not where.exists():
        raise InvalidInput(f"there is no file {os.fspath(path)!r}: check the path.")
    if not name.endswith(FORMATS):
        raise InvalidInput(f"{where.name!r} is not a supported kind of file: give a CSV, Parquet or Feather file.")
    if not os.access(where, os.R_OK):
        raise InvalidInput(f"you do not have permission to read {os.fspath(path)!r}: ask its owner.")
    if where.stat().st_size == 0:
        raise InvalidData(f"{where.name} is empty: it needs a line of column names, then one line per person.")
    if name.endswith((".parquet", ".pq")):
        return _ParquetFile(where)
    if name.endswith((".feather", ".arrow")):
        return _FeatherFile(where)
    return _CsvFile(where)


def _opened_elsewhere(path: Path) -> TableFile:
    """Open a file on a machine that may not have it."""
    try:
        return open_table(path)
    except InvalidData:
        raise
    except InvalidInput:
        raise InvalidInput(
            f"a worker of the cluster cannot read {path.name}: put the table where all workers can read it, under the "
            "same path."
        ) from None


def name_without_suffix(path: Path) -> str:
    """Return a file's name without the suffix of its format; other dots belong to the name."""
    suffixes = [one for one in FORMATS if path.name.lower().endswith(one)]
    return path.name[: -len(max(suffixes, key=len))] if suffixes else path.name


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _need_pyarrow(path: Path) -> None:
    try:
        import pyarrow.ipc  # noqa: F401
    except ImportError:
        raise MissingDependency(
            f"reading {path.name} needs pyarrow: install `dperm[tables]`, or give a CSV file."
        ) from None


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Replace the errors of Python and pyarrow about an unreadable file by one sentence without values."""
    try:
        yield
    except UnicodeDecodeError:
        raise InvalidData(f"{path.name} is not UTF-8 text: save it again as CSV in UTF-8.") from None
    except csv.Error:
        raise InvalidData(f"{path.name} is not a CSV file: save it again as CSV in UTF-8.") from None
    except (gzip.BadGzipFile, EOFError):
        raise InvalidData(f"{path.name} is damaged or is not a gzip file: export it again.") from None
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        reason = getattr(error, "strerror", None)
        if reason:
            raise InvalidInput(f"{str(path)!r} cannot be read: {reason}.") from None
        raise InvalidData(f"{path.name} is damaged, or its format does not match its name: export it again.") from None
