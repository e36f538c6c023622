"""``copilot doctor``: everything that can be wrong, each with what helps."""

from __future__ import annotations

from collections.abc import Iterator

import click

from copilot_client.doctor import findings
from copilot_client.doctor.findings import Finding
from copilot_client.options import json_option
from copilot_client.output import write_json, write_lines
from copilotd.errors import SettingsError
from copilotd.paths import find_places
from copilotd.text import printable

EXAMPLES = """\b
Examples:
  copilot doctor
  copilot doctor --json | jq '.findings[] | select(.level != "ok")'
"""


@click.command(epilog=EXAMPLES)
@json_option
def doctor(as_json: bool) -> None:
    """Checks the installation, the daemon, the index and the folders, and says what helps.

    Starts nothing and changes nothing; a provider is only asked whether it answers. Exit code 0: nothing fails;
    1: something does.
    """
    found = list(_examine())
    failed = any(finding.level == "fail" for finding in found)
    if as_json:
        write_json({"healthy": not failed, "findings": [_json(finding) for finding in found]})
    else:
        write_lines(_lines(found))
    if failed:
        raise click.exceptions.Exit(1)


def _examine() -> Iterator[Finding]:
    try:
        places = find_places()
    except SettingsError as error:
        yield Finding("settings", "fail", error.message, error.hint)
        return
    yield from findings.installation()
    yield from findings.folders(places)
    about_daemon, status = findings.daemon(places)
    yield from about_daemon
    yield from findings.roots(places, status)
    yield from findings.watches(status)
    yield findings.service(places)


def _json(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level,
        "message": printable(finding.message),
        "fix": printable(finding.fix),
    }


def _lines(found: list[Finding]) -> Iterator[str]:
    for finding in found:
        yield f"{finding.level:<5} {finding.check:<9} {printable(finding.message)}"
        if finding.fix:
            yield f"      Next: {printable(finding.fix)}"
    counts = {level: sum(finding.level == level for finding in found) for level in ("ok", "warn", "fail")}
    yield f"{counts['ok']} checks are well, {counts['warn']} warn, {counts['fail']} fail."
