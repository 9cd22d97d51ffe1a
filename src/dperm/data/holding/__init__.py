"""Private data and the only way out of them.

``holder.py`` keeps the data and releases query values with noise, ``design_data.py`` is one block of scaled rows with
their targets, ``party.py`` and ``table_data.py`` are the data of a vertical participant and of a table without bounds,
``score_cache.py`` is what may be kept between queries. May import ``data.design``, ``data.tables`` and
:mod:`dperm.privacy`. A new kind of private data is a class with a property ``facts`` of public numbers and a method
``parts`` that runs a query on its blocks; a new query goes into :mod:`dperm.queries`.
"""
