"""Numbers and identifiers: what counts as one, and what counts as standing in a passage."""

from __future__ import annotations

import pytest

from copilotd.query.support_facts import FactSource, code_facts, facts_of


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("Run `borg prune --dry-run -n` now.", ["--dry-run", "-n"]),
        ("Set `BORG_REPO` in /etc/borg/config.yml.", ["BORG_REPO", "/etc/borg/config.yml"]),
        ("Use `verify` first.", ["verify"]),
        ("It came with v1.2.3.", ["v1.2.3"]),
        ("It listens on port 8080, not 80.", ["8080", "80"]),
        ("Wait 5 minutes or two days.", ["5 minutes", "two days"]),
        ("It takes 1,000 MB.", ["1,000 MB"]),
        ("On macOS see https://a.example/x.", ["macOS", "https://a.example/x"]),
        ("1. First.\n2) Second, see step 3.", []),
        ("Read and/or write, e.g. here, the 2nd one.", []),
        ("HTTP and SSH work.", []),
        ("Pass <name> and ...", []),
    ],
)
def test_what_is_a_fact(said: str, facts: list[str]) -> None:
    assert sorted(fact.text for fact in facts_of(said)) == sorted(facts)


def test_facts_of_code_leave_words_and_comments_out() -> None:
    code = "borg init --encryption=repokey /path/to/repo  # makes 5 repos\nexport BORG_REPO='x:y'\nrun <name> 7 ..."
    names = [fact.text for fact in code_facts(code)]
    assert names == ["--encryption", "/path/to/repo", "BORG_REPO", "x:y", "7"]


SOURCE = FactSource(
    [
        "Use --dry-run-now (or -P) and version 1.2.3 at 1,000 MB for two days;",
        "see /etc/borg/config.yml of macOS 14. Port 8080.",
    ]
)


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ("`--dry-run-now`", True),
        ("`--dry-run`", False),
        ("`--Dry-run-now`", False),
        ("`-P`", True),
        ("`-p`", False),
        ("1.2.3", True),
        ("1.2", False),
        ("v1.2.4", False),
        ("1000 MB", True),
        ("1000 GB", False),
        ("1000 of them", True),
        ("2 days", True),
        ("two days", True),
        ("2 weeks", False),
        ("3 days", False),
        ("/etc/borg/config.yml", True),
        ("/etc/borg/config.yaml", False),
        ("MacOS", True),
        ("8080", True),
        ("808", False),
        ("80801", False),
    ],
)
def test_a_fact_stands_in_a_passage_as_a_whole(said: str, held: bool) -> None:
    (fact,) = facts_of(said)
    assert SOURCE.holds(fact) is held
