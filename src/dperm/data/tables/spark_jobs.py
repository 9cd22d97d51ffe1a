"""Jobs on a Spark cluster: one answer for each partition, added up on the workers, and refusals that show no values.

A function that fails on a worker would put its error, with values of people, into the logs and the error of the driver.
So functions return their refusals as data, and an error of Spark itself becomes one sentence. Answers depend on the
rows alone: a task that Spark repeats, or runs twice, changes nothing.
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

from dperm.errors import ClusterLost, DpermError, InvalidData, PlanViolation

__all__ = ["Answer", "answered", "answers_of_frame", "collected", "one_answer", "run_job"]

T = TypeVar("T")

#: up to so many answers come to the driver one by one; more are added on the workers first
_FEW_ANSWERS = 16

_FAILED = "a computation on a Spark worker failed: its error is not shown, because it may contain values of people."
_SPARK_FAILED = (
    "Spark could not finish the job {!r}: its own error is not shown, because it may contain values of people; read "
    "the log of its workers, where dperm must be installed in the same version."
)
_CLUSTER_LOST = (
    "the Spark cluster does not answer any more, or has lost workers too often during the job {!r}: start it again and "
    "repeat; what was reserved in a ledger stays spent."
)
#: words of Spark's errors about machines and processes, not about values
_LOSS = ("ExecutorLostFailure", "Python worker exited unexpectedly", "SparkContext was shut down", "FetchFailed")
_JOB_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True)
class Answer:
    """What a partition returns: a value, or the sentence that refuses its rows."""

    value: Any = None
    refusal: str = ""
    partition: int = 0
    kind: type[DpermError] = InvalidData


def answered(partition: int, values: Callable[[], Iterable[Any]]) -> Iterator[Answer]:
    """Yield the values that a worker computes; after an error yield its sentence instead, and no value of a person."""
    try:
        for value in values():
            yield Answer(value, partition=partition)
    except DpermError as error:
        kind = PlanViolation if isinstance(error, PlanViolation) else InvalidData
        yield Answer(refusal=str(error), partition=partition, kind=kind)
    except Exception:  # whatever it is, its message may contain values
        yield Answer(refusal=_FAILED, partition=partition)


@dataclass(frozen=True)
class _OnPartition:
    """Runs a function on the Arrow batches of a partition; each answer is a row with one column of bytes."""

    work: Callable[[int, Iterator[Any]], Iterable[Any]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        for answer in answered(number, lambda: self.work(number, batches)):
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(answer)], pa.binary())], ["answer"])
        for _ in batches:  # a worker that leaves rows unread is not used again
            pass


def answers_of_frame(frame: Any, work: Callable[[int, Iterator[Any]], Iterable[Any]]) -> Any:
    """Return the RDD of the answers of all partitions of a DataFrame; ``work`` gets their number and Arrow batches."""
    on_partition = _OnPartition(work)

    def run(batches: Iterator[Any]) -> Iterator[Any]:  # Spark takes plain functions only
        return on_partition(batches)

    return frame.mapInArrow(run, "answer binary").rdd.map(_opened)


def _opened(row: Any) -> Any:
    return pickle.loads(row[0])


def one_answer(
    context: Any, what: str, answers: Any, add: Callable[[Any, Any], Any], finish: Callable[[Any], Any] | None = None
) -> Any:
    """Add up the values of an RDD of answers, on the workers if there are many, and return their sum.

    With ``finish`` all are added on one worker, in the order of the partitions, and what it makes of the sum is
    returned.
    """
    join = _Joined(add)
    count = answers.getNumPartitions()
    if finish is not None:
        answers = answers.keyBy(_Group(1)).groupByKey(1).values().map(_Finished(join, finish))
    elif count > _FEW_ANSWERS:
        groups = max(2, round(count**0.5))
        answers = answers.keyBy(_Group(groups)).reduceByKey(join, groups).values()
    return reduce(join, _not_refused(collected(context, what, answers))).value


def collected(context: Any, what: str, answers: Any) -> list[Answer]:
    """Run a job and return its answers, none of them a refusal."""
    return _not_refused(run_job(context, what, answers.collect))


def _not_refused(answers: list[Answer]) -> list[Answer]:
    refused = min((one for one in answers if one.refusal), key=lambda one: one.partition, default=None)
    if refused is not None:
        raise refused.kind(refused.refusal)
    return answers


@dataclass(frozen=True)
class _Joined:
    """Adds two answers; of two refusals the one of the first partition stays."""

    add: Callable[[Any, Any], Any]

    def __call__(self, one: Answer, other: Answer) -> Answer:
        if one.refusal or other.refusal:
            return min((each for each in (one, other) if each.refusal), key=lambda each: each.partition)
        return Answer(self.add(one.value, other.value), partition=min(one.partition, other.partition))


@dataclass(frozen=True)
class _Finished:
    """Adds all answers in the order of their partitions, and finishes their sum."""

    join: _Joined
    finish: Callable[[Any], Any]

    def __call__(self, answers: Iterable[Answer]) -> Answer:
        total = reduce(self.join, sorted(answers, key=lambda one: one.partition))
        if total.refusal:
            return total
        return next(answered(total.partition, lambda: [self.finish(total.value)]))


@dataclass(frozen=True)
class _Group:
    """The group of partitions whose answers are added together."""

    count: int

    def __call__(self, answer: Answer) -> int:
        return answer.partition % self.count


def run_job(context: Any, what: str, action: Callable[[], T]) -> T:
    """Run an action of Spark under a name that its pages show; an interruption cancels it.

    An error of Spark becomes one sentence without values.
    """
    before = {key: context.getLocalProperty(key) for key in _JOB_PROPERTIES}
    group, refused = f"dperm {uuid.uuid4()}", DpermError()
    try:
        context.setJobGroup(group, f"dperm: {what}", interruptOnCancel=False)
        return action()
    except Exception as error:
        lost = _is_stopped(context) or any(words in str(error) for words in _LOSS)
        refused = ClusterLost(_CLUSTER_LOST.format(what)) if lost else InvalidData(_SPARK_FAILED.format(what))
    except BaseException:
        with contextlib.suppress(Exception):
            context.cancelJobGroup(group)
        raise
    finally:
        with contextlib.suppress(Exception):
            for key, value in before.items():
                context.setLocalProperty(key, value)
    raise refused  # outside the except block: an error's context would keep the hidden values


def _is_stopped(context: Any) -> bool:
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # its process is gone
        return True
