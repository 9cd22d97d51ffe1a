"""Turns docstrings into Markdown for the site: they are written for ``help()``, with a little reStructuredText."""

from __future__ import annotations

import re
from typing import Any

try:
    from griffe import Extension
except ImportError:  # the tests import this file without the documentation tools
    Extension = object

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|obj):`~?([^`]+)`")
_FORMULA = re.compile(r":math:`([^`]+)`")
_BLOCK = re.compile(r"^( *)\.\. math:: *(.*(?:\n(?:\1 +\S.*)?)*)", re.MULTILINE)
_CODE = re.compile(r"``([^`]+)``")
# Examples, and tables drawn with lines of "=", stay as they are, in a fence.
_VERBATIM = re.compile(r"^( *)(?:(>>> ).*(?:\n\1(?=\S).*)*|=+(?: +=+)+\n(?:.*\n)*?\1=+(?: +=+)+$)", re.MULTILINE)


def to_markdown(text: str) -> str:
    r"""Markdown for a docstring.

    >>> to_markdown("See :class:`~dperm.solvers.Peel` and ``n_steps``, :math:`x^2`.")
    'See `Peel` and `n_steps`, $x^2$.'
    >>> print(to_markdown(".. math:: a =\n   b\n\nThen"))
    $$
    a = b
    $$
    <BLANKLINE>
    Then
    >>> to_markdown("An example::\n\n    >>> f(``x``)\n    3").splitlines()
    ['An example:', '', '    ```pycon', '    >>> f(``x``)', '    3', '    ```']
    >>> to_markdown("== ==\na  ``b``\n== ==").splitlines()
    ['```text', '== ==', 'a  ``b``', '== ==', '```']
    """
    parts, end = [], 0
    for found in _VERBATIM.finditer(text):
        indent, language = found[1], "pycon" if found[2] else "text"
        kept = _ROLE.sub(lambda m: m[1].rsplit(".", 1)[-1].ljust(len(m[0])), found[0])
        parts += [_prose(text[end : found.start()]), f"{indent}```{language}\n{kept}\n{indent}```"]
        end = found.end()
    return "".join([*parts, _prose(text[end:])])


def _prose(text: str) -> str:
    text = _BLOCK.sub(lambda m: f"{m[1]}$$\n{m[1]}{' '.join(m[2].split())}\n{m[1]}$$\n\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    text = _FORMULA.sub(r"$\1$", text)
    text = _ROLE.sub(lambda m: f"`{m[1].rsplit('.', 1)[-1]}`", text)
    text = re.sub(r"^ *::$", "", text, flags=re.MULTILINE)
    text = re.sub(r"::(?=\n)", ":", text)
    return _CODE.sub(r"`\1`", text)


class Docstrings(Extension):
    """Apply :func:`to_markdown` to every docstring that is read."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
