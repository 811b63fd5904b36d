"""Completion for shells."""

from __future__ import annotations

import click
import msgspec

from penstock.cli import environment
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command

SHELLS = ("bash", "zsh", "fish")


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A script for a shell."""

    shell: str
    """`bash`, `zsh` or `fish`."""
    script: str
    """The script for the shell."""


@declare_command(
    "completion",
    prints=Completion,
    examples='$ eval "$(penstock completion bash)"\n$ penstock completion fish > penstock.fish',
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_call
def completion(call: CommandContext, shell: str) -> None:
    """Print the script that completes commands, names and keys in your SHELL.

    \b
    bash   add to ~/.bashrc:  eval "$(penstock completion bash)"
    zsh    add to ~/.zshrc:   eval "$(penstock completion zsh)"
    fish   penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(root, {}, "penstock", environment.COMPLETE).source()
    call.print_answer(lambda: Completion(shell=shell, script=script), lambda _: [script])
