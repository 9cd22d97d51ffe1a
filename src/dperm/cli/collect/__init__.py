"""The commands of ``dperm collect``.

``commands`` has the group and most commands, ``init`` writes descriptions, ``send`` sends a report, ``fetch`` reads
addresses and files, and ``show`` prints estimates. They import :mod:`dperm.collect` inside the commands, so that other
commands start quickly. A new command is added to the group in ``commands``, in the order in which an operator needs it.
"""
