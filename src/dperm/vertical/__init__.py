"""The vertical runtime: one model over columns that different organisations hold, run between their machines.

Rooms, from top to bottom; each may import only those below it (``participant`` and ``methods`` also each other):

- :mod:`participant`: one organisation's own side: configuration, table, ledger, policy.
- :mod:`methods`: what runs compute, and the registry of handlers; a new training method goes into
  :mod:`dperm.solvers.vertical`, and needs nothing here.
- :mod:`session`: the protocol of a run: steps, records on disk, reservations, resuming.
- :mod:`views`: protection of replies from the coordinator; a new trust view goes here.
- :mod:`transport`: messages, envelopes and links; a new transport goes here.
- :mod:`identity`: names, keys, certificates, revocation.

The programs that exchange the messages of a method, and their proofs, are in ``dperm/solvers/vertical``; the commands
are in ``dperm/cli/vertical``. After a crash of any participant a run resumes, and no release is made or charged twice.
"""
