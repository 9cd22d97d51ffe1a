"""Vertical methods: one model over columns that different parties hold.

A :class:`VerticalTask` is the public description of a run. It builds the programs of both sides (``protocol.py`` has
their interface), which :func:`run_in_process` runs in one process and :mod:`dperm.vertical` between processes. Code
here may import queries, data, objective and privacy, never :mod:`dperm.vertical`; it reaches private data through a
``DataHolder`` only and never sends a message itself. A new method is one file with its task and its two programs, a
proof next to it, and one line in :data:`TASKS`.
"""

from dperm.solvers.vertical.admm_transcript import TranscriptSharing
from dperm.solvers.vertical.baselines import centralised, local_only
from dperm.solvers.vertical.exact_admm import ExactSharing
from dperm.solvers.vertical.frank_wolfe import DistributedFrankWolfe
from dperm.solvers.vertical.frank_wolfe_printed import PrintedFrankWolfe
from dperm.solvers.vertical.frank_wolfe_transcript import SketchedFrankWolfe
from dperm.solvers.vertical.in_process import MessageLog, message_bytes, run_in_process
from dperm.solvers.vertical.protocol import CoordinatorProgram, Message, PartyProgram
from dperm.solvers.vertical.score_sharing import AdmmSharing, BlocksOverParties
from dperm.solvers.vertical.sgd import SgdOverParties
from dperm.solvers.vertical.task import VerticalResult, VerticalTask

__all__ = [
    "TASKS",
    "AdmmSharing",
    "BlocksOverParties",
    "CoordinatorProgram",
    "DistributedFrankWolfe",
    "ExactSharing",
    "Message",
    "MessageLog",
    "PartyProgram",
    "PrintedFrankWolfe",
    "SgdOverParties",
    "SketchedFrankWolfe",
    "TranscriptSharing",
    "VerticalResult",
    "VerticalTask",
    "centralised",
    "local_only",
    "message_bytes",
    "run_in_process",
]

#: tasks by name; one line here enrols a new task in the contract suite
TASKS: dict[str, type[VerticalTask]] = {
    task.name: task
    for task in (
        AdmmSharing,
        BlocksOverParties,
        TranscriptSharing,
        DistributedFrankWolfe,
        SketchedFrankWolfe,
        PrintedFrankWolfe,
        ExactSharing,
        SgdOverParties,
    )
}
