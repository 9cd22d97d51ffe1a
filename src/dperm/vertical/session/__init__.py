"""The run protocol: its steps, what is stored before anything is sent, how a run resumes, and what is reserved.

:mod:`spec` describes a run and the handlers of a method. :mod:`coordinator` and :mod:`party` (with :mod:`party_run`)
are the two sides. :mod:`run_folder` stores records, :mod:`reservations` charges the ledger, :mod:`row_checks` compares
rows, :mod:`status` holds the public progress, and :mod:`simulate` runs all sides in one process. A session knows no
particular method, table or configuration: it may import ``views``, ``transport`` and ``identity``, not ``methods`` or
``participant``. Changes to the protocol go here.
"""
