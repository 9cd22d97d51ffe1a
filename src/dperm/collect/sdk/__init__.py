"""Clients that make reports on a person's own device: ``js/dperm.js`` for browsers, ``python`` for everything else.

Both compute the same numbers, operation by operation, and the tests compare them. ``bundle`` shortens the JavaScript
for the service. The folder ``python`` uses the standard library only and imports nothing else of dperm, so that an
application can copy it. A new kind of statistic is added to both clients, and ``report.proof.md`` is read again.
"""
