"""The ``copilot`` command: its commands by group, loaded when used, and the one place that ends the process.

========  ==================================================================
exit code meaning
========  ==================================================================
0         answered, or honestly said that it isn't known
1         failed; the message says why and what to do next
2         the command line or what it names is wrong
3         the daemon isn't there or doesn't answer
130       Ctrl-C
141       the reader of a pipe went away (as SIGPIPE would say)
========  ==================================================================
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from copilot_client.terminal import make_streams_forgiving
from copilotd import __version__
from copilotd.errors import CopilotError

EXIT_FAILED, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_INTERRUPTED, EXIT_PIPE = 1, 2, 3, 130, 141

# Errors of the daemon that mean "not now" or, from one that is starting, "never"; those of the client itself
# are DaemonUnavailable.
_UNAVAILABLE_CODES = frozenset(
    {"busy", "cannot_start", "index_locked", "index_too_new", "shutting_down", "version_mismatch"}
)

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Questions",
        (
            ("ask", "ask", "Answer a question from your documents, with sources."),
            ("chat", "chat", "Talk with your documents: follow-ups, rendered answers."),
            ("search", "search", "List the best passages without composing an answer."),
            ("section", "section", "Print a cited section whole."),
            ("conversations", "conversations", "List, export or delete what was asked before."),
        ),
    ),
    (
        "Documents",
        (
            ("index", "index", "Add a folder; it stays up to date by itself."),
            ("roots", "roots", "List the indexed folders."),
            ("forget", "roots", "Remove a folder from the index."),
            ("rebuild", "index", "Read every document again."),
            ("calibrate", "calibrate", "Fit the confidence for another embedding model."),
        ),
    ),
    (
        "Daemon",
        (
            ("status", "status", "Show what is indexed, pending and wrong."),
            ("start", "lifecycle", "Start the daemon."),
            ("stop", "lifecycle", "Stop the daemon."),
            ("restart", "lifecycle", "Stop the daemon and start it again."),
            ("service", "service", "Run the daemon as a service: install, status, logs."),
            ("config", "config", "Show and change the settings."),
            ("reload", "reload", "Make the daemon read its settings again."),
            ("logs", "logs", "Print the end of the daemon's log; -f follows it."),
            ("check", "check", "Verify the index, and mend it with --repair."),
            ("doctor", "doctor", "Look for what is wrong, and say what helps."),
            ("model", "model", "List, fetch or verify embedding models."),
            ("completions", "completions", "Print the completion script of a shell."),
        ),
    ),
)
_MODULES = {name: module for _, commands in GROUPS for name, module, _ in commands}


class LazyGroup(click.Group):
    """Imports the module of a command when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command; each module names its commands as they are called."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"copilot_client.commands.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the commands that a mistyped one is close to."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            # Two letters that changed places in a word of three leave two thirds.
            close = difflib.get_close_matches(args[0], _MODULES, n=2, cutoff=0.65) if args else []
            if close:
                meant = f"{error.message} Did you mean {' or '.join(close)}?"
                raise click.UsageError(meant, ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by group, without importing them."""
        for title, commands in GROUPS:
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, _, summary in commands], col_max=14)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog="Example: copilot index ~/docs, then: copilot ask how do I restore a backup",
)
@click.version_option(__version__, "-V", "--version", prog_name="copilot", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Ask your own documentation, with sources."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    make_streams_forgiving()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if "_COPILOT_COMPLETE" in os.environ:
        cli.main(argv, prog_name="copilot")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except OSError as error:
        _silence(sys.stdout)
        if error.errno == errno.EPIPE:
            return EXIT_PIPE
        print(f"Error: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _run(argv: list[str]) -> int:
    try:
        with cli.make_context("copilot", argv) as context:
            cli.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stdout.flush()
        print(file=sys.stderr)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.info_name in ("ask", "search"):
            question = f"copilot {error.ctx.info_name} -- {error.option_name} …"
            error = click.UsageError(
                f"{error.format_message()} A question that begins with a dash comes after two: {question}",
                error.ctx,
            )
        if not _wants_json(argv):
            error.show()
        else:
            _show_json_error("usage", error.format_message(), "copilot --help")
        return error.exit_code
    except CopilotError as error:
        if _wants_json(argv):
            _show_json_error(error.code, error.message, error.hint)
        else:
            _show_error(error)
        return exit_code(error)
    return 0


def exit_code(error: CopilotError) -> int:
    """Returns the exit code an error stands for."""
    from copilot_client.connection import DaemonUnavailable
    from copilotd.errors import Cancelled, UsageError

    if isinstance(error, DaemonUnavailable) or error.code in _UNAVAILABLE_CODES:
        return EXIT_UNAVAILABLE
    if isinstance(error, UsageError):
        return EXIT_USAGE
    return EXIT_INTERRUPTED if isinstance(error, Cancelled) else EXIT_FAILED


def _wants_json(argv: list[str]) -> bool:
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options


def _show_error(error: CopilotError) -> None:
    from copilotd.text import printable

    # What was printed before belongs above the error, also where both go to one file.
    sys.stdout.flush()
    print(f"Error: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  Next: {printable(error.hint)}", file=sys.stderr)


def _show_json_error(code: str, message: str, hint: str) -> None:
    from copilot_client.output import write_json

    write_json({"error": {"code": code, "message": message, "hint": hint}})


def _silence(stream: object) -> None:
    """Points a stream whose reader is gone at nothing, so that the interpreter's last flush is quiet."""
    fileno = getattr(stream, "fileno", None)
    if fileno is None:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, fileno())
    finally:
        os.close(null)
