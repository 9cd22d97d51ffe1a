"""The collections that a database takes reports for, and their numbers in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dperm.collect.description import Collection
from dperm.collect.store.database import Database
from dperm.errors import InvalidInput

__all__ = ["Registry"]


class Registry:
    """The registered collections, as this process knows them.

    Attributes
    ----------
    collections : mapping
        All collections by their digest.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers: dict[str, int] = {}
        self._collections: dict[str, Collection] = {}

    @property
    def collections(self) -> Mapping[str, Collection]:
        return self._collections

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of every collection in the tables, by its digest."""
        return self._numbers

    def number(self, collection: Collection) -> int:
        """Return a collection's number in the tables."""
        return self._numbers[collection.digest]

    def refresh(self) -> None:
        """Read the collections that another process has registered."""
        with self._database.reading() as connection:
            sql = "SELECT number, digest, document FROM dperm_tasks ORDER BY number"
            rows = self._database.rows(connection, sql)
        for number, digest, document in rows:
            if digest not in self._numbers:
                self._collections[digest] = Collection.parse(document)
                self._numbers[digest] = number

    def register(self, collection: Collection) -> None:
        """Accept a collection's reports from now on; a registered description never changes."""
        database = self._database

        def insert(connection: Any) -> None:
            where = (collection.name, collection.version)
            found = database.rows(connection, "SELECT digest FROM dperm_tasks WHERE name = ? AND version = ?", where)
            if found and found[0][0] != collection.digest:
                raise InvalidInput(
                    f"version {collection.version} of {collection.name!r} has another description in "
                    f"{database.address}, and descriptions are immutable: give the new one the next version."
                )
            if found:
                return
            number = database.rows(connection, "SELECT COALESCE(MAX(number), 0) + 1 FROM dperm_tasks")[0][0]
            database.rows(
                connection,
                "INSERT INTO dperm_tasks (number, digest, name, version, document) VALUES (?, ?, ?, ?, ?)",
                (number, collection.digest, *where, collection.text),
            )
            database.spent_ids.make_tables(connection, number)

        database.write(insert)
        self.refresh()

    def find(self, name: str, version: int | None = None) -> Collection | None:
        """Return a collection by its name, the newest version unless one is given."""
        found = [one for one in self._collections.values() if one.name == name and version in (None, one.version)]
        return max(found, key=lambda one: one.version, default=None)
