"""Tables as users have them: files, dataframes of other libraries, and sources that are read in blocks of rows.

Nothing here scales or encodes a value, and only ``dperm.errors`` and ``dperm.types`` are imported. Where a new format
goes:

- a file format for the command line: a :class:`~dperm.data.tables.files.TableFile` in ``files.py``, listed in
  ``FORMATS`` and opened by ``open_table``;
- a table too large for memory: a :class:`~dperm.data.tables.row_source.RowSource` in a module of its own (as
  ``parquet.py`` and ``dask_rows.py``), recognised by ``row_source``;
- a dataframe library: its types and conversion in ``frames.py`` (numbers only, for ``fit(X, y)``) and
  ``raw_columns.py`` (numbers and text, for a schema).

Optional libraries are imported only when a user's own object or file needs them.
"""
