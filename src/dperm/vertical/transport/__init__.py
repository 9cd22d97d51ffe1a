"""How messages travel between the coordinator and the parties, and the log of who connected.

:mod:`wire` encodes messages, :mod:`envelope` adds run, step and state, :mod:`frames` cuts envelopes into pieces for a
stream, and :mod:`base` defines the :class:`Transport` that a session uses. Transports (in process, gRPC with mutual
TLS, NVIDIA FLARE) know nothing of methods, tables or ledgers, and import only the ``identity`` room. A new transport is
a module here; test it inside :class:`dperm.testing.faulty_transport.FaultyTransport`.
"""
