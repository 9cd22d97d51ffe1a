"""The HTTP service of a collector: takes reports, publishes estimates.

``server`` runs the process, ``service`` answers requests, ``wire`` reads reports, ``tokens`` checks one-time tokens,
``group_commit`` writes reports to the store, ``publishing`` and ``results`` make estimates, ``metrics`` and ``openapi``
describe the service itself. It reaches the database through :class:`~dperm.collect.store.store.Store` only, and looks
at no cookie or user agent, and at addresses only to limit reports per source (``sources``).
A new address of the service is a route in ``service`` and a path in ``openapi``.
"""
