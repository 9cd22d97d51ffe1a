"""``dperm completion``: the script with which a shell completes commands, options, columns and data sets."""

from __future__ import annotations

import click

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    For bash:
      dperm completion bash > ~/.local/share/bash-completion/completions/dperm
    """
    from click.shell_completion import get_completion_class

    from dperm.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "dperm", "_DPERM_COMPLETE").source())
