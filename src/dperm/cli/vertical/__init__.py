"""The commands of ``dperm vertical``: parsing, the progress display and what a user reads.

:mod:`commands` starts coordinators and parties, :mod:`keys` manages certificates, :mod:`progress` shows runs. Commands
import the runtime (``dperm.vertical``) inside their functions, so that ``dperm --help`` stays fast. A new command is a
function here; what it does belongs in ``dperm.vertical``.
"""
