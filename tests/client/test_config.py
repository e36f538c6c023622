"""``copilot config`` and ``copilot reload``: what reaches the settings file, what is refused, what stays hidden."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_home import Home, temporary_home
from support.scripted_daemon import ScriptedDaemon, failure, reply
from support.terminal import Terminal

from copilot_client.settings_file import quote, set_value, unset_value
from copilotd.errors import SettingsError, UsageError
from copilotd.paths import parse_env

KEY = "sk-ant-hidden-0123456789"


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home() as home:
        home.env.pop("PYTHONWARNINGS")
        yield home


def file_of(home: Home) -> Path:
    return home.path / "c" / "copilot" / ".env"


def write(home: Home, text: str, mode: int = 0o600) -> Path:
    file = file_of(home)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


# ------------------------------------------------------------------------------------- path, get, list


def test_path_is_where_the_daemon_reads(home: Home) -> None:
    assert home.run("config", "path").out == f"{file_of(home)}\n"
    other = {"COPILOT_ENV_FILE": str(home.path / "other.env")}
    assert home.run("config", "path", env=other).out == f"{home.path}/other.env\n"
    assert not file_of(home).exists(), "looking makes nothing"


def test_get_tells_what_is_in_use(home: Home) -> None:
    assert home.run("config", "get", "TOP_K").out == "5\n"
    write(home, "TOP_K = 9 \n")
    assert home.run("config", "get", "top_k").out == "9\n"
    assert home.run("config", "get", "TOP_K", env={"TOP_K": "3"}).out == "3\n"
    shown = json.loads(home.run("config", "get", "TOP_K", "--json").out)
    assert (shown["name"], shown["value"]) == ("TOP_K", 9)
    wrong = home.run("config", "get", "TOP_KK")
    assert wrong.code == 2
    assert "Did you mean TOP_K?" in wrong.err


def test_list_hides_keys_and_says_where_each_value_comes_from(home: Home) -> None:
    write(home, f"ANTHROPIC_API_KEY={KEY}\nTOP_K=9\n")
    done = home.run("config", "list", env={"LOG_LEVEL": "DEBUG"})
    assert done.code == 0
    assert "ANTHROPIC_API_KEY" in done.out
    assert "environment" in next(line for line in done.out.splitlines() if line.startswith("LOG_LEVEL"))
    everything = [home.run("config", "list", *options) for options in (("--all",), ("--json",), ())]
    everything.append(home.run("config", "get", "ANTHROPIC_API_KEY"))
    assert not any(KEY in done.out + done.err for done in everything)


def test_all_problems_are_in_one_report(home: Home) -> None:
    write(home, "TOP_K=many\nOCR=perhaps\nCONFIDENCE_THRESHOLD=7\n")
    done = home.run("config", "list")
    assert done.code == 1
    for name in ("TOP_K", "OCR", "CONFIDENCE_THRESHOLD"):
        assert f"{name} must be" in done.err
    assert "3 settings are wrong" in done.err


# ------------------------------------------------------------------------------------- set, unset


def test_set_writes_for_the_owner_alone_and_keeps_the_rest(home: Home) -> None:
    file = write(home, "# mine\nexport TOP_K='6'  # six\nLOG_LEVEL=INFO\n")
    done = home.run("config", "set", "top_k", "  8 ")
    assert done.code == 0, done.err
    assert file.read_text() == "# mine\nexport TOP_K=8  # six\nLOG_LEVEL=INFO\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "reads the file when it starts" in done.err
    file.unlink()
    file.parent.rmdir()
    assert home.run("config", "set", "TOP_K", "4").code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [".env"], "no draft is left"


def test_a_file_open_to_others_is_told_and_closed(home: Home) -> None:
    file = write(home, "TOP_K=6\n", 0o644)
    assert "open to other users" in home.run("config", "list").err
    done = home.run("config", "set", "TOP_K", "7")
    assert "was open to other users; now only you can read it" in done.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TOP_K", "many", "TOP_K must be"), ("TOP_K", "0", "TOP_K must be"), ("LLM_PROVIDER", "skynet", "LLM_PROVIDER"),
        ("TOP_K", " ", "the value is empty"), ("NO_SUCH", "1", "There is no setting"),
        ("COPILOT_ENV_FILE", "/x", "There is no setting"), ("LLM_MODEL", "a\nb", "control characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_not_written(home: Home, name: str, value: str, said: str) -> None:
    file = write(home, "TOP_K=6\n")
    done = home.run("config", "set", name, value)
    assert done.code in (1, 2)
    assert said in done.err
    assert file.read_text() == "TOP_K=6\n"


def test_a_key_is_not_taken_from_the_command_line(home: Home) -> None:
    refused = home.run("config", "set", "ANTHROPIC_API_KEY", KEY)
    assert refused.code == 2
    assert "other users can see it" in refused.err
    refused = home.run("config", "set", "OPENAI_BASE_URL", "https://me:secret@host/v1")
    assert refused.code == 2
    assert not file_of(home).exists()
    done = home.run("config", "set", "ANTHROPIC_API_KEY", stdin=f" {KEY}\n".encode())
    assert done.code == 0, done.err
    assert file_of(home).read_text() == f"ANTHROPIC_API_KEY={KEY}\n"
    assert KEY not in done.out + done.err


def test_a_terminal_is_asked_without_an_echo(home: Home) -> None:
    command = home.command("config", "set", "ANTHROPIC_API_KEY")
    terminal = Terminal(command, {**home.env, "TERM": "xterm"}, home.path)
    try:
        terminal.wait_for("ANTHROPIC_API_KEY:")
        terminal.type(f"{KEY}\n")
        assert terminal.wait_until_gone() == 0
        assert KEY not in terminal.shown
    finally:
        terminal.close()
    assert file_of(home).read_text() == f"ANTHROPIC_API_KEY={KEY}\n"


def test_one_wrong_setting_does_not_keep_another_from_being_mended(home: Home) -> None:
    file = write(home, "TOP_K=many\nOCR=perhaps\n")
    done = home.run("config", "set", "TOP_K", "5")
    assert done.code == 0, done.err
    assert "Still wrong: OCR" in done.err
    assert home.run("config", "unset", "OCR").code == 0
    assert file.read_text() == "TOP_K=5\n"


def test_unset_takes_out_what_no_version_knows(home: Home) -> None:
    file = write(home, "TOP_KK=7\nTOP_K=7\n")
    assert home.run("config", "unset", "TOP_KK").code == 0
    assert file.read_text() == "TOP_K=7\n"
    assert "is not set" in home.run("config", "unset", "OCR").err
    assert home.run("config", "unset", "NO_SUCH").code == 2


def test_the_environment_that_hides_the_file_is_told(home: Home) -> None:
    done = home.run("config", "set", "TOP_K", "8", env={"TOP_K": "3"})
    assert "that goes before the file" in done.err


def test_a_link_to_a_file_elsewhere_stays_a_link(home: Home) -> None:
    real = home.path / "dotfiles" / "copilot.env"
    real.parent.mkdir()
    real.write_text("TOP_K=6\n")
    real.chmod(0o600)
    file_of(home).parent.mkdir(parents=True)
    file_of(home).symlink_to(real)
    assert home.run("config", "set", "TOP_K", "8").code == 0
    assert file_of(home).is_symlink()
    assert real.read_text() == "TOP_K=8\n"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(home: Home) -> None:
    write(home, "TOP_K=6\n").parent.chmod(0o500)
    done = home.run("config", "set", "TOP_K", "8")
    assert (done.code, "can't be written" in done.err) == (1, True)
    file_of(home).parent.chmod(0o700)


# ------------------------------------------------------------------------------------- edit


def editor(home: Home, body: str) -> dict[str, str]:
    program = home.path / "an editor"
    program.write_text(f"#!{sys.executable}\nimport sys\npath = sys.argv[-1]\n{body}\n")
    program.chmod(0o700)
    return {"EDITOR": f"'{program}' --wait", "VISUAL": ""}


def test_edit_checks_what_was_written_before_it_is_used(home: Home) -> None:
    file = write(home, "TOP_K=6\n")
    done = home.run("config", "edit", env=editor(home, "open(path, 'a').write('OCR=on\\n')"))
    assert done.code == 0, done.err
    assert file.read_text() == "TOP_K=6\nOCR=on\n"
    done = home.run("config", "edit", env=editor(home, "open(path, 'w').write('TOP_K=no\\nOCR=no way\\n')"))
    assert done.code == 1
    assert "TOP_K" in done.err
    assert "OCR" in done.err
    assert "was left as it was" in done.err
    assert file.read_text() == "TOP_K=6\nOCR=on\n"
    assert "Nothing was changed." in home.run("config", "edit", env=editor(home, "")).err


def test_edit_without_an_editor_or_with_one_that_fails(home: Home) -> None:
    none = home.run("config", "edit", env={"EDITOR": "", "VISUAL": " "})
    assert (none.code, "export EDITOR" in none.err) == (2, True)
    failed = home.run("config", "edit", env=editor(home, "sys.exit(4)"))
    assert (failed.code, "ended with code 4" in failed.err) == (1, True)
    missing = home.run("config", "edit", env={"EDITOR": "/no/such/editor", "VISUAL": ""})
    assert (missing.code, "can't be run" in missing.err) == (1, True)


# ------------------------------------------------------------------------------------- reload


def test_reload_says_what_is_in_use_now_and_what_waits(home: Home) -> None:
    taken = {"changed": ["TOP_K"], "needs_restart": ["EMBED_MODEL"], "warnings": ["OPEN: to others"]}
    with ScriptedDaemon(home.socket, {"reload": reply(taken)}) as daemon:
        done = home.run("reload")
        assert done.out.splitlines() == [
            "In use now: TOP_K", "In use after a restart: EMBED_MODEL. Next: copilot restart",
        ]  # fmt: skip
        assert done.err == "OPEN: to others\n"
        assert json.loads(home.run("reload", "--json").out) == taken
        changed = home.run("config", "set", "TOP_K", "8")
        assert "In use now: TOP_K" in changed.out
        assert [request.method for request in daemon.requests].count("reload") == 3
    with ScriptedDaemon(home.socket, {"reload": reply({"changed": [], "needs_restart": [], "warnings": []})}):
        assert home.run("reload").out == "Nothing has changed.\n"


def test_reload_without_a_daemon_or_with_wrong_settings(home: Home) -> None:
    none = home.run("reload")
    assert (none.code, "copilot start" in none.err) == (3, True)
    with ScriptedDaemon(home.socket, {"reload": failure(SettingsError("TOP_K must be a number."))}):
        wrong = home.run("reload")
    assert (wrong.code, wrong.err.splitlines()[0]) == (1, "Error: TOP_K must be a number.")


def test_an_older_daemon_that_can_not_reload_is_named(home: Home) -> None:
    script = {"reload": failure(UsageError("There is no method 'reload'."))}
    with ScriptedDaemon(home.socket, script, {"version": "0.0.9"}):
        done = home.run("reload")
    assert done.code == 3
    assert "older version and can't reload" in done.err
    assert "copilot restart" in done.err


# ------------------------------------------------------------------------------------- the text


@pytest.mark.parametrize(
    "value", ["a", "a b", "it's", 'say "x"', "back\\slash", "#no comment", "$HOME", "é", "a#b ", "="]
)
def test_a_value_is_read_back_as_it_was_set(value: str) -> None:
    text = set_value("FIRST=1\n", "NAME", value)
    assert dict(parse_env(text)) == {"FIRST": "1", "NAME": value}
    assert dict(parse_env(set_value(text, "NAME", "other"))) == {"FIRST": "1", "NAME": "other"}
    assert unset_value(text, "NAME") == "FIRST=1\n"


def test_line_ends_and_duplicates() -> None:
    assert set_value("A=1\r\n", "B", "2") == "A=1\r\nB=2\r\n"
    assert set_value("A=1", "B", "2") == "A=1\nB=2\n"
    assert set_value("A=1\nA=2\n", "A", "3") == "A=1\nA=3\n", "the last one counts"
    assert unset_value("A=1\nB=2\nA=3\n", "A") == "B=2\n"
    with pytest.raises(UsageError):
        quote("a\x1b[2J")
