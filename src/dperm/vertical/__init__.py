"""The multi-party runtime: programs of different owners run between processes, resume, and never spend twice.

Layers, each knowing only the ones before it: :mod:`wire` (bytes of a message), :mod:`store` (a run's folder),
:mod:`budget` (a run's reservation), :mod:`party` and :mod:`coordinator` (the session: what is answered, when, and what
is refused), transports (in process, gRPC with mutual TLS, NVIDIA FLARE), and the commands.
"""
