"""Which changes are made: Cosmic Ray's operators that keep code plausible, and two of our own.

Cosmic Ray can replace any binary operator by any other. Most of these fail at once (a float cannot be shifted), which
says nothing about the tests and makes the score look good. So each operator has one or two replacements here, those
that a person might write by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray import plugins
from cosmic_ray.operators.operator import Example, Operator

_BINARY = (
    ("Add", "Sub"),
    ("Sub", "Add"),
    ("Mul", "Div"),
    ("Div", "Mul"),
    ("FloorDiv", "Div"),
    ("Mod", "FloorDiv"),
    ("Pow", "Mul"),
    ("RShift", "LShift"),
    ("LShift", "RShift"),
    ("BitOr", "BitAnd"),
    ("BitAnd", "BitOr"),
    ("BitXor", "BitAnd"),
)
_COMPARISONS = (
    ("Lt", "LtE"),
    ("LtE", "Lt"),
    ("Gt", "GtE"),
    ("GtE", "Gt"),
    ("Lt", "Gt"),
    ("LtE", "GtE"),
    ("Gt", "Lt"),
    ("GtE", "LtE"),
    ("Eq", "NotEq"),
    ("NotEq", "Eq"),
    ("Is", "IsNot"),
    ("IsNot", "Is"),
)
_OTHERS = (
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "ZeroIterationForLoop",
)

_OPPOSITES = {
    "min": "max",
    "minimum": "maximum",
    "floor": "ceil",
    "any": "all",
    "logical_and": "logical_or",
}
OPPOSITES = _OPPOSITES | {other: one for one, other in _OPPOSITES.items()}


class ReplaceByOpposite(Operator):
    """Replaces a function by its opposite: the smaller by the larger, rounding down by rounding up."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "name" and node.value in OPPOSITES and _is_called(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = OPPOSITES[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x = min(a, b)", "x = max(a, b)"), Example("x = np.floor(a)", "x = np.ceil(a)"))


class DeleteCall(Operator):
    """Deletes a call made for what it does, not for what it returns: a check, a charge, a write."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if _is_statement_of_one_call(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return parso.python.tree.Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("check(x)\n", "pass\n"), Example("if a:\n    a.b(c)\n", "if a:\n    pass\n"))


def _is_called(name: Any) -> bool:
    """Whether a name is the function of a call: ``name(...)`` or ``x.name(...)``."""
    after = name.get_next_leaf()
    return after is not None and after.value == "(" and after.parent.type == "trailer"


def _is_statement_of_one_call(node: Any) -> bool:
    if node.type not in ("atom_expr", "power") or node.parent is None or node.parent.type != "simple_stmt":
        return False
    last = node.children[-1]
    return bool(last.type == "trailer" and last.children[0].value == "(")


# Cosmic Ray asks its providers for operators by name; ours stands beside its own
plugins.OPERATOR_PROVIDERS["dperm"] = {one.__name__: one for one in (ReplaceByOpposite, DeleteCall)}

OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{one}_{other}" for one, other in _BINARY),
    *(f"core/ReplaceComparisonOperator_{one}_{other}" for one, other in _COMPARISONS),
    *(f"core/{name}" for name in _OTHERS),
    "dperm/ReplaceByOpposite",
    "dperm/DeleteCall",
)


def operator(name: str) -> Operator:
    return plugins.get_operator(name)()
