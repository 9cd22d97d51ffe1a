"""Vertical methods: one model over columns held by different parties.

A task is the public description of a run; it makes the programs of both sides, which :func:`run_in_process` runs in one
process and the multi-party runtime between processes.
"""

from dperm.solvers.vertical.admm_transcript import TranscriptSharing
from dperm.solvers.vertical.baselines import centralised, local_only
from dperm.solvers.vertical.exact_admm import ExactSharing
from dperm.solvers.vertical.frank_wolfe import DistributedFrankWolfe
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

#: tasks by name; a new one is its file and one line here, which enrols it in the contract suite
TASKS: dict[str, type[VerticalTask]] = {
    task.name: task
    for task in (
        AdmmSharing,
        BlocksOverParties,
        TranscriptSharing,
        DistributedFrankWolfe,
        SketchedFrankWolfe,
        ExactSharing,
        SgdOverParties,
    )
}
