"""``copilot completions``: what a shell needs to complete our commands and options."""

from __future__ import annotations

import click

EXAMPLES = """\b
Examples:
  copilot completions bash > ~/.local/share/bash-completion/completions/copilot
  copilot completions zsh > ~/.zfunc/_copilot
  copilot completions fish > ~/.config/fish/completions/copilot.fish
"""

VARIABLE = "_COPILOT_COMPLETE"


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completions(context: click.Context, shell: str) -> None:
    """Prints the completion script of a shell."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "copilot", VARIABLE)
    # Not kind.source: for bash that looks for a bash on the PATH, which may be an old one that isn't the user's.
    click.echo(ShellComplete.source(script))
