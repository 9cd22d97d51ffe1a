"""Every query that a report may list has a plain name for readers."""

from __future__ import annotations

from dperm.queries import QUERIES
from dperm.reporting.labels import query_label


def test_every_registered_query_has_a_plain_name():
    """A label may equal the name where that is plain already, so it is looked up in the table itself."""
    from dperm.reporting import labels

    assert [name for name in QUERIES if name not in labels._QUERIES] == []
    assert query_label("mapped gradient") == "gradient of the loss"
