"""Find the data of experiments: files in the folder that ``DPERM_DATA`` names; made data stand in for missing ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from dperm.errors import InvalidInput

__all__ = ["DATA_VARIABLE", "DataFolder", "Dataset"]

#: the environment variable that names the folder
DATA_VARIABLE = "DPERM_DATA"


@dataclass(frozen=True)
class Dataset:
    """A table and its target, with what a reader must know about where they come from."""

    X: Any  # dense array or scipy sparse matrix
    y: Any
    n_train: int
    #: begins with "real", "stand-in" or "made"
    origin: str
    seed: int | None = None


@dataclass(frozen=True)
class DataFolder:
    """The folder with the data of experiments; None if the user named none."""

    path: Path | None

    @classmethod
    def of_environment(cls) -> DataFolder:
        """Return the folder that ``DPERM_DATA`` names."""
        named = os.environ.get(DATA_VARIABLE)
        if not named:
            return cls(None)
        if not Path(named).is_dir():
            raise InvalidInput(
                f"{DATA_VARIABLE} names {named!r}, which is not a folder: correct it, or unset it to use made data."
            )
        return cls(Path(named))

    def has(self, file: str) -> bool:
        """Whether a file is there."""
        return self.path is not None and (self.path / file).is_file()

    def digest(self, file: str) -> str | None:
        """Return the SHA-256 of a file, None if it is missing."""
        if not self.has(file):
            return None
        assert self.path is not None
        return hashlib.sha256((self.path / file).read_bytes()).hexdigest()

    def read(self, file: str, made: Callable[[], Dataset], origin: str = "real") -> Dataset:
        """Read an ``.npz`` file with ``y`` and a dense ``X`` or a sparse matrix; if it is missing, make data."""
        if not self.has(file):
            return made()
        import numpy as np
        import scipy.sparse as sp

        assert self.path is not None
        path = self.path / file
        try:
            with path.open("rb") as stream, np.load(stream) as stored:
                y = stored["y"].astype(float)
                n_train = int(stored["n_train"]) if "n_train" in stored else len(y)
                dense = stored["X"].astype(float) if "X" in stored else None
            X = sp.load_npz(path).astype(float) if dense is None else dense
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InvalidInput(
                f"{str(path)!r} is not a data set of the experiments ({type(error).__name__}): replace or remove it."
            ) from None
        return Dataset(X, y, n_train, f"{origin}, {file}")
