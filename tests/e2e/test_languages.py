"""What holds in every language alike, by the words of golden/languages.yaml: questions beside runs, text of all scripts, ends."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, slack, wait_for

LANGUAGES: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "golden" / "languages.yaml").read_text())

GREETINGS = {
    "German": "Grüß Gott", "Russian": "Здравствуйте", "Greek": "Γειά σου", "Chinese": "你好", "Japanese": "こんにちは", "Korean": "안녕하세요",
    "Thai": "สวัสดี", "Hindi": "नमस्ते", "Arabic, right to left": "مرحبا بالعالم 123", "Hebrew, right to left": "שלום עולם",
    "combining": "e\u0301 a\u030a \u0e01\u0e34\u0e4a Z\u0351\u036b", "emoji": "👩‍👩‍👧 👋🏽 🇩🇪",
}


class Speaker:
    """A sandbox with the words of its language."""

    def __init__(self, sandbox: Sandbox, language: str):
        self.sandbox, self.language, self.words = sandbox, language, LANGUAGES[language]
        self.context = sandbox.record["default_context"]
        if sandbox.get(f"/contexts/{self.context}")["language"] != language:
            self.context = sandbox.context(language=language)["id"]

    def run(self, word: str, text: str = "", **fields: Any) -> dict[str, Any]:
        code = self.words[word].replace("TEXT", json.dumps(text, ensure_ascii=False))
        return self.sandbox.run(code, context=self.context, **fields)

    def ask(self, what: str, code: str) -> dict[str, Any]:
        return self.sandbox.post(f"/contexts/{self.context}/{what}", {"code": code, "cursor": len(code)})

    def variables(self) -> list[str]:
        return [v["name"] for v in self.sandbox.get(f"/contexts/{self.context}/variables")["items"]]


@pytest.fixture(scope="module", params=LANGUAGES)
def speaker(client: Client, request: pytest.FixtureRequest) -> Iterator[Speaker]:
    """One a language; its tests come together."""
    with client.sandbox(template=LANGUAGES[request.param]["template"]) as sb:
        yield Speaker(sb, request.param)


def test_questions_disturb_nothing(speaker: Speaker) -> None:
    """Neither history nor the last value, neither output nor the count."""
    first = speaker.run("value")
    state = speaker.run("state")
    runs = [speaker.run("value")["run"]]
    for _ in range(2):
        assert speaker.variables() == ["x_value"]
        for code, start in (("x_val", 0), ("x_value; 👋 = x_val", 13)):  # in code points; not where it stands first
            got = speaker.ask("complete", code)
            assert (got["matches"], got["start"], got["end"]) == (["x_value"], start, start + 5), got
        known = speaker.ask("inspect", speaker.words["known"])
        assert known["found"] is True and not any("\x1b" in str(text) for text in known["formats"].values())
        shown = speaker.ask("inspect", "x_value")
        assert shown["found"] is True and "2" in shown["formats"]["text/plain"]
        assert speaker.ask("inspect", "no_such_name_at_all") == {"found": False, "formats": {}}
        assert speaker.ask("complete", "no_such_name_at_all")["matches"] == []
    after = speaker.run("state")
    runs.append(after["run"])
    assert after["execution_count"] == first["execution_count"] + 3
    assert (after["stdout"], after["stderr"], len(after["results"])) == ("", "", len(state["results"]))
    if speaker.language == "python":
        assert after["text"] == f"(42, {speaker.words['value']!r}, [1, 2, 3], [])"
    else:
        assert after["text"] == state["text"]
    assert not any(speaker.sandbox.get(f"/runs/{run}")["late"] for run in runs)


@pytest.mark.parametrize("name", GREETINGS)
def test_text_of_all_scripts(speaker: Speaker, name: str) -> None:
    text = GREETINGS[name]
    assert speaker.run("print", text)["stdout"] == text + "\n"
    assert speaker.run("warn", text)["stderr"] == text + "\n"
    shown = speaker.run("show", text)
    assert text in shown["text"] and text in shown["results"][0]["formats"]["text/plain"]
    failed = speaker.run("raise", text)
    assert failed["error"]["message"] == text and any(text in line for line in failed["error"]["traceback"]), failed["error"]


def test_text_comes_while_the_code_goes_on(speaker: Speaker) -> None:
    """It goes on until its text has come: that makes the file that it waits for."""
    sb, name = speaker.sandbox, f"go-{uuid.uuid4().hex}"
    code = speaker.words["hold"].replace("TEXT", json.dumps(name))
    for event in sb.stream(code, context=speaker.context, timeout=60):
        if event["type"] == "stdout":
            assert event["text"] == "up\n"
            sb.client.call("PUT", f"{sb.path}/fs/file", params={"path": name}, content=b"", expect=201)
    assert (event["type"], event["status"]) == ("result", "ok"), event


@pytest.mark.parametrize("what", ["sleep", "child"])
def test_an_interrupt_keeps_state_and_output(speaker: Speaker, what: str) -> None:
    speaker.run("keep")
    events: list[dict[str, Any]] = []
    up = threading.Event()

    def follow() -> None:
        code = speaker.words[what]
        for event in speaker.sandbox.stream(code, context=speaker.context):
            events.append(event)
            if event["type"] == "stdout":
                up.set()
        up.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert up.wait(30)
    if what == "child":
        time.sleep(0.3 * slack())  # system(3) ignores an interrupt that comes while it starts its child
    assert speaker.sandbox.post(f"/contexts/{speaker.context}/interrupt")["interrupted"] is True
    thread.join(5 * slack())
    assert not thread.is_alive()
    end = events[-1]
    assert (end["type"], end["status"], end["error"]["name"], end["error"]["state"]) == ("result", "interrupted", "Interrupted", "kept"), end
    assert end["stdout"] == "up\n"
    assert "42" in speaker.run("kept")["text"]


@pytest.mark.skipif(ISOLATION == "none" or os.geteuid() != 0,
                    reason="isolation none, and users without control groups of their own, hold no limits")
@pytest.mark.parametrize("language", LANGUAGES)
def test_out_of_memory_is_told(client: Client, language: str) -> None:
    with client.sandbox(template=LANGUAGES[language]["template"], limits={"memory_mib": 384}) as sb:
        if sb.record["isolation"]["cgroup"] in (None, "none"):
            pytest.skip("no memory controller on this host")
        speaker = Speaker(sb, language)
        speaker.run("print", "before")
        got = speaker.run("eat")
        assert (got["status"], got["error"]["name"], got["error"]["state"]) == ("oom", "OutOfMemory", "lost"), got
        assert speaker.run("print", "after")["stdout"] == "after\n"
