"""Schemas: what the owner of a table declares public about its columns, and how it turns them into bounded numbers.

``schema.py`` holds the declaration, ``schema_file.py`` its TOML form, ``draft.py`` a first proposal from a table, and
``encoding.py`` its use. Only ``draft.py`` and the encoding read values, and an encoded value depends on its own cell
and the schema alone. A new kind of column needs a constant and checks in ``schema.py``, a line in ``encoding.py`` and a
line in ``encoding.proof.md``. May import ``data.design`` (bounds) and ``data.tables``.
"""
