"""One organisation's own side: its configuration, table, ledger and policy.

:mod:`config` reads the TOML file, :mod:`tables` reads the declared columns in the common order, :mod:`ledger` opens the
ledger with its cap, and :mod:`policy` decides which runs a party agrees to. :mod:`nvflare_site` runs a participant as
an NVIDIA FLARE class. Only this room reads an organisation's files. It may import every other room; ``methods`` may
import its configuration, tables and ledger, but not its policy. New limits that a party can set go into ``Allowed`` in
:mod:`config` and are checked in :mod:`policy`.
"""
