"""One run with many canaries (Steinke, Nasr & Jagielski 2023): each is in the table or not, by the toss of a coin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.bounds import CanaryScores, LowerBound, one_run_bound, one_run_fdp_bound, one_run_noise_factor
from dperm.audit.result import AttackResult, Verdict
from dperm.audit.tables import AuditTable, PublicFacts
from dperm.errors import SubjectFailed
from dperm.privacy.accounting import gdp
from dperm.types import BoolArray, FloatArray

__all__ = ["OneRunAttack"]

#: canaries; one for each column if the function takes so many columns
_N_CANARIES = 200
#: tables with other coins that show whether being in the table raises or lowers the score, and runs on each, which
#: show how much of a score is noise
_N_PILOT, _PILOT_RUNS = 4, 2


class OneRunAttack(Attack):
    """Guesses from one released vector which of many canaries were in the table.

    A canary is a record along one column, if the function takes a wide table, and otherwise at a random corner. Its
    score is the alignment of the released weights with it: entries of the vector that belong to the columns, which
    must come first. The coin chooses between two labels, or for add-remove neighbours between in and out.
    """

    name: ClassVar[str] = "one-run"
    about: ClassVar[str] = "many canaries in a single run (Steinke, Nasr & Jagielski 2023)"
    share: ClassVar[float] = 0.2
    other_tables: ClassVar[bool] = True
    fewest: ClassVar[int] = 9
    advice: ClassVar[str] = (
        "A single result tells which records were in the table. There is far less noise than the claim needs: "
        "check how it is set."
    )

    def run(self, context: AttackContext) -> AttackResult:
        """Guess."""
        if context.hurried:
            sentence = "Left out, because runs are slow and its power is low: --attacks one-run makes it."
            return AttackResult(self.name, Verdict.NOT_RUN, sentence)
        pilot: list[_Scores] = []
        refused = "the function takes no wide table."
        for problem in self._problems(context):
            try:
                pilot = [problem.scores(_PILOT_RUNS) for _ in range(_N_PILOT)]
            except SubjectFailed as error:
                if not error.raised:
                    raise
                refused = str(error)
            except _NoScores as short:
                refused = str(short)
            else:
                break
        if not pilot:
            return AttackResult(self.name, Verdict.NOT_RUN, f"Tables of many canaries cannot be used: {refused}")
        sign = float(np.sign(np.mean([one.gap for one in pilot])) or 1.0)
        final = problem.scores(1)
        found = self._judged(context, sign * final.inside, sign * final.outside)
        return replace(found, noise_factor=_power(context, pilot, sign))

    @staticmethod
    def _problems(context: AttackContext) -> Iterator[_Canaries]:
        if context.pool.subject.any_width:
            wide = replace(context.facts, n_features=_N_CANARIES)
            yield _Canaries(wide, np.eye(_N_CANARIES, dtype=np.bool_), context)
        corners = context.rng.random((_N_CANARIES, context.facts.n_features)) < 0.5
        yield _Canaries(context.facts, corners, context)

    def _judged(self, context: AttackContext, inside: FloatArray, outside: FloatArray) -> AttackResult:
        epsilon, delta = context.claim.tested
        mu = context.claim.tested_mu
        if min(inside.min(), outside.min()) == max(inside.max(), outside.max()):
            return AttackResult(self.name, Verdict.NOTHING, "All canaries have the same score.", epsilon=0.0)
        each = 1.0 - (1.0 - context.confidence) / (1 if mu is None else 2)
        bounds: list[tuple[LowerBound, float]] = [
            (one_run_bound(inside, outside, delta=delta, confidence=each), epsilon)
        ]
        if mu is not None:
            bound = one_run_fdp_bound(inside, outside, delta=delta, confidence=each)
            bounds.append((bound, gdp.epsilon_of(mu, delta)))
        best = max(bounds, key=lambda one: (one[0].epsilon > one[1], one[0].epsilon))
        guilty = best[0].epsilon > best[1]
        return AttackResult(
            self.name,
            Verdict.VIOLATION if guilty else Verdict.NOTHING,
            best[0].detail,
            epsilon=best[0].epsilon,
            method=best[0].method,
            detail={"canaries": _N_CANARIES},
        )


class _NoScores(Exception):
    """The released vector has no entry for every column."""

    def __init__(self, n_columns: int, n_released: int) -> None:
        numbers = "1 number" if n_released == 1 else f"{n_released} numbers"
        super().__init__(f"this attack gave it {n_columns} columns and got {numbers}; it needs one for each.")


@dataclass(frozen=True)
class _Scores:
    """Scores of canaries, one row per run on the same table, and their coins."""

    values: FloatArray
    coins: BoolArray

    @property
    def inside(self) -> FloatArray:
        """Scores in the first run of the canaries that are in."""
        found: FloatArray = self.values[0, self.coins]
        return found

    @property
    def outside(self) -> FloatArray:
        """Scores in the first run of the canaries that are out."""
        found: FloatArray = self.values[0, ~self.coins]
        return found

    @property
    def gap(self) -> float:
        """Difference of their means, over all runs."""
        return float(self.values[:, self.coins].mean() - self.values[:, ~self.coins].mean())


def _power(context: AttackContext, pilot: list[_Scores], sign: float) -> float:
    """Return the noise factor that the run would have found, by the gap and the spread of the pilot's scores."""
    epsilon, delta = context.claim.tested
    variance = float(np.mean([np.var(side, ddof=1) for one in pilot for side in (one.inside, one.outside)]))
    noise = float(np.mean([np.var(one.values, axis=0, ddof=1).mean() for one in pilot]))
    scores = CanaryScores(
        gap=sign * float(np.mean([one.gap for one in pilot])),
        noise_variance=noise,
        other_variance=max(variance - noise, 0.0),
    )
    return one_run_noise_factor(
        scores,
        pilot[0].coins.size,
        epsilon=epsilon,
        delta=delta,
        mu=context.claim.tested_mu,
        confidence=context.confidence,
    )


class _Canaries:
    """Tables of canaries, and their scores after one run."""

    def __init__(self, facts: PublicFacts, high: BoolArray, context: AttackContext) -> None:
        low, top = facts.feature_range
        elsewhere = low if high.any(axis=0).all() and high.sum() > len(high) else facts.centre
        self._X: FloatArray = np.where(high, top, elsewhere)
        self._facts, self._context = facts, context

    def scores(self, n_runs: int) -> _Scores:
        """Toss coins, run so many times on their table, and score every canary."""
        coins = self._context.rng.random(len(self._X)) < 0.5
        coins[:2] = True, False  # both labels occur
        released = self._context.pool.outputs(self._table(coins), n_runs)
        if released.shape[1] < self._facts.n_features:
            raise _NoScores(self._facts.n_features, released.shape[1])
        centred = self._X - self._X.mean(axis=0)
        # the first two coins were not tossed
        return _Scores((released[:, : self._facts.n_features] @ centred.T)[:, 2:], coins[2:])

    def _table(self, coins: BoolArray) -> AuditTable:
        low, high = self._facts.targets
        if self._context.claim.neighbours == "add-remove":
            # the others keep both labels in the table
            rest = np.full((4, self._facts.n_features), self._facts.centre)
            rows = np.concatenate([self._X[coins], rest])
            return self._facts.table(rows, [high] * int(coins.sum()) + [low, high] * 2)
        return self._facts.table(self._X, [high if coin else low for coin in coins])
