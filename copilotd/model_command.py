"""``copilotd model list | pull | verify``: the embedding models on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from copilotd.embed.models import LocatedModel, installed_models, locate_model, pull_model, verify_model
from copilotd.errors import CopilotError
from copilotd.settings import load_settings
from copilotd.text import printable

_EPILOG = """\
exit status:
  0  done
  1  a model is missing or damaged, or the hub can't be reached
  2  wrong use of this command

examples:
  copilot model list
  copilot model pull BAAI/bge-small-en-v1.5
  copilot model verify
"""


def run(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "pull":
            return _pull(options.name, options.json)
        if options.command == "verify":
            return _verify(options.name, options.json)
        return _list(options.json)
    except CopilotError as error:
        if options.json:
            print(json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}))
        else:
            print(printable(f"Error: {error.message}\n  Next: {error.hint}"), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="copilot model",
        description="Lists, fetches and verifies embedding models. EMBED_MODEL chooses the one in use.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, about in (
        ("list", "list the models on this machine; the one in use is marked"),
        ("pull", "download a model from the hub; the only command that goes to the network for a model"),
        ("verify", "check the hashes of a model's files"),
    ):
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("--json", action="store_true", help="print JSON")
        if name == "pull":
            command.add_argument("name", metavar="NAME", help="for instance BAAI/bge-small-en-v1.5")
        if name == "verify":
            command.add_argument(
                "name", nargs="?", metavar="NAME", help="default: every model on this machine"
            )
    parser.set_defaults(json=False)
    return parser


def _list(as_json: bool) -> int:
    chosen = load_settings().embed_model
    models = installed_models()
    if as_json:
        print(json.dumps({"models": [_json(model, chosen) for model in models], "embed_model": chosen}))
        return 0
    for model in models:
        mark = "*" if _is_chosen(model, chosen) else " "
        print(printable(f"{mark} {model.name:40} {model.source:8} {model.folder}"))
    if not any(_is_chosen(model, chosen) for model in models):
        print(
            printable(f"EMBED_MODEL={chosen} is not on this machine: copilot model pull {chosen}"),
            file=sys.stderr,
        )
    return 0


def _pull(name: str, as_json: bool) -> int:
    if not as_json:
        print(printable(f"Fetching {name} from the hub…"), file=sys.stderr)
    model = pull_model(name)
    if as_json:
        print(json.dumps(_json(model, load_settings().embed_model)))
    else:
        print(
            printable(
                f"{model.name} is in {model.folder}\nTo use it: set EMBED_MODEL={name}, then copilot restart"
            )
        )
    return 0


def _verify(name: str | None, as_json: bool) -> int:
    models = [locate_model(name)] if name else installed_models()
    problems = {model.name: verify_model(model) for model in models}
    if as_json:
        print(json.dumps({"models": [{"name": key, "problems": found} for key, found in problems.items()]}))
    else:
        for key, found in problems.items():
            print(printable(f"{key}: {'; '.join(found) if found else 'every file has the expected content'}"))
    return 1 if any(problems.values()) else 0


def _json(model: LocatedModel, chosen: str) -> dict[str, object]:
    return {
        "name": model.name,
        "source": model.source,
        "folder": str(model.folder),
        "fingerprint": model.fingerprint,
        "in_use": _is_chosen(model, chosen),
    }


def _is_chosen(model: LocatedModel, chosen: str) -> bool:
    return model.name == chosen or model.name.removeprefix("sentence-transformers/") == chosen
