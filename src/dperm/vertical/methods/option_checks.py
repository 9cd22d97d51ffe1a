"""What can be said about a run's options before anybody is called: all that needs no facts of the parties."""

from __future__ import annotations

from dataclasses import asdict

from dperm.data.design.facts import Facts
from dperm.errors import DpermError, InvalidInput
from dperm.vertical.methods.connection_test import CONNECTION_TEST, connection_test_options
from dperm.vertical.methods.training import holds_intercept, task_of
from dperm.vertical.session.spec import RunSpec

__all__ = ["refuse_wrong_options"]

#: stands in for every party's table; wide enough that no option is refused for a width that is not known yet
_SOME = asdict(Facts(n=1000, n_features=1 << 20, d=1 << 20, value_bound=1.0, row_bound=1.0))


def refuse_wrong_options(spec: RunSpec) -> None:
    """Refuse an unknown method, an unknown option, or a value that no table would make right.

    Raises
    ------
    InvalidInput
        With a sentence that names the option.
    """
    if spec.method == CONNECTION_TEST:
        connection_test_options(spec)
        return
    try:
        task_of(spec.with_facts(dict.fromkeys(spec.parties, _SOME)))
        holds_intercept(spec, spec.parties[0])
    except DpermError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"a value under [run.options] of run {spec.run!r} is not of its option's kind: a text where a number "
            "belongs, or the other way round."
        ) from None
