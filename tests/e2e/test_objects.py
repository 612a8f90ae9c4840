"""Sandboxes, contexts, templates, keys: the surface of the API, its owners and scopes."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml
from harness.client import Client, Sandbox
from harness.daemon import BUILD, ISOLATION, TEMPLATE, Daemon, wait_for

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


def test_sandbox_record(client: Client) -> None:
    answer = client.call("POST", "/v1/sandboxes", expect=201,
                         json={"template": TEMPLATE, "name": "first", "metadata": {"team": "a"}, "timeout": 120})
    record = answer.json()
    assert answer.headers["location"] == f"/v1/sandboxes/{record['id']}"
    assert re.match(r"^sbx-[a-z0-9]{20}$", record["id"])
    assert record["name"] == "first" and record["template"] == TEMPLATE and record["state"] == "running"
    assert record["metadata"] == {"team": "a"}
    assert record["isolation"].keys() >= {"kind", "userns", "seccomp", "cgroup", "network", "disk"}
    for key in ("created_at", "last_active_at", "expires_at"):
        assert TIME.match(record[key]), record[key]
    assert record["start"] and record["default_context"] and record["id"][4:9] == record["node"]
    sandbox = Sandbox(client, record)
    assert client.get("/v1/sandboxes/first")["id"] == record["id"]
    client.error("POST", "/v1/sandboxes", 409, "name_taken", json={"template": TEMPLATE, "name": "first"})
    listed = client.get("/v1/sandboxes", params={"metadata.team": "a"})
    assert [s["id"] for s in listed["items"]] == [record["id"]] and listed["next"] is None
    assert client.get("/v1/sandboxes", params={"metadata.team": "b"})["items"] == []
    changed = client.call("PATCH", sandbox.path, expect=200, json={"timeout": 600, "metadata": {"team": "b"}}).json()
    assert changed["metadata"] == {"team": "b"} and changed["expires_at"] > record["expires_at"]
    sandbox.delete()
    client.error("GET", sandbox.path, 404, "sandbox_not_found")
    client.error("DELETE", sandbox.path, 404, "sandbox_not_found")


def test_list_pages(client: Client) -> None:
    made = [client.sandbox(template="base", metadata={"page": "yes"}) for _ in range(5)]
    seen, after = [], None
    while True:
        params = {"limit": 2, "metadata.page": "yes", **({"after": after} if after else {})}
        page = client.get("/v1/sandboxes", params=params)
        assert len(page["items"]) <= 2
        seen += [s["id"] for s in page["items"]]
        after = page["next"]
        if not after:
            break
    assert sorted(seen) == sorted(s.id for s in made)
    for sandbox in made:
        sandbox.delete()


def test_idle_sandbox_ends(client: Client) -> None:
    sandbox = client.sandbox(template="base", timeout=1, on_timeout="kill")
    wait_for(lambda: client.call("GET", sandbox.path).status_code == 404, 6)


def test_isolation_that_cannot_be_met_is_refused(client: Client) -> None:
    answer = client.call("POST", "/v1/sandboxes", json={"template": "base", "isolation": "gvisor"})
    if answer.status_code == 201:
        client.delete(f"/v1/sandboxes/{answer.json()['id']}")
        pytest.skip("this host has runsc, and so every isolation there is")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "isolation_unavailable") and "none" in error["hint"], error


@pytest.mark.skipif(ISOLATION == "none", reason="a daemon that was started with none allows it")
def test_an_isolation_below_the_floor_is_refused(client: Client) -> None:
    error = client.error("POST", "/v1/sandboxes", 409, "isolation_unavailable", json={"template": "base", "isolation": "none"})
    assert error["pointer"] == "/isolation" and "isolation_min" in error["hint"] and "process" in error["hint"], error


@pytest.mark.parametrize("least, kind, status", [
    ("none", "none", 201), ("auto", ISOLATION, 201), (ISOLATION, ISOLATION, 201), (ISOLATION, "none", 201 if ISOLATION == "none" else 409)])
def test_the_operator_sets_the_floor(least: str, kind: str, status: int) -> None:
    with Daemon("--isolation-min", least) as daemon:
        own = Client(daemon.url, daemon.key)
        answer = own.call("POST", "/v1/sandboxes", json={"template": "base", "isolation": kind})
        assert answer.status_code == status, answer.text
        assert status != 201 or answer.json()["isolation"]["kind"] == kind
        own.close()


def test_contexts(fresh: Sandbox) -> None:
    error = fresh.client.error("POST", fresh.path + "/contexts", 400, "invalid_request", json={"language": "python", "cwd": "not/there"})
    assert error["pointer"] == "/cwd"
    fresh.run("import os; os.makedirs('deep/er')")
    a = fresh.context(language="python", name="a", cwd="deep/er", env={"WHO": "a"})
    assert a["language"] == "python" and a["sandbox"] == fresh.id and a["execution_count"] == 0 and a["queue"] == 0
    assert a["cwd"] == "/workspace/deep/er"
    assert re.match(r"^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", a["id"])
    b = fresh.context(language="py")
    fresh.run("x = 1", context=a["id"])
    fresh.run("x = 2", context=b["id"])
    assert fresh.run("print(x)", context="a")["stdout"] == "1\n"
    assert fresh.run("print(x)", context=b["id"])["stdout"] == "2\n"
    assert fresh.run("import os; print(os.getcwd().endswith('deep/er'), os.environ['WHO'])", context="a")["stdout"] == "True a\n"
    assert len(fresh.get("/contexts")["items"]) == 3
    fresh.client.error("POST", fresh.path + "/contexts", 409, "name_taken", json={"language": "python", "name": "a"})
    fresh.client.error("POST", fresh.path + "/contexts", 400, "language_not_found", json={"language": "cobol"})
    answer = fresh.client.call("POST", fresh.path + "/run_code", json={"code": "1", "context": a["id"], "language": "r"})
    assert answer.status_code == 400 and answer.json()["error"]["pointer"] == "/language"
    assert fresh.client.get(f"/v1/contexts/{a['id']}")["sandbox"] == fresh.id
    fresh.client.delete(f"{fresh.path}/contexts/{a['id']}")
    fresh.client.error("GET", f"{fresh.path}/contexts/a", 404, "context_not_found")
    assert fresh.run("print(x)", context=b["id"])["stdout"] == "2\n"


def test_runs_of_one_context(fresh: Sandbox) -> None:
    fresh.run("0")
    a = fresh.context(language="python", name="a")
    run = fresh.run("1", context="a")["run"]
    assert fresh.run("echo")["run"] != fresh.post("/exec", {"cmd": "true"})["run"]  # a command has no context

    def runs(context: str) -> list[str]:
        return [item["run"] for item in fresh.get("/runs", params={"context": context})["items"]]

    assert runs("a") == runs(a["id"]) == [run]
    assert fresh.context(language="python", name="idle") and runs("idle") == []
    error = fresh.client.error("GET", fresh.path + "/runs?context=nope", 404, "context_not_found")
    assert error["pointer"] == "/context" and fresh.id in error["message"]
    with fresh.client.socket() as ws:
        ident = ws.send("runs.list", sandbox=fresh.id, context="nope")
        assert (failure := ws.receive())["id"] == ident and failure["error"]["code"] == "context_not_found"
    fresh.client.delete(f"{fresh.path}/contexts/a")  # its runs are told by its id still
    assert runs(a["id"]) == [run]
    fresh.client.error("GET", fresh.path + "/runs?context=a", 404, "context_not_found")


def test_context_that_could_not_start_leaves_its_name(fresh: Sandbox) -> None:
    path = fresh.path + "/contexts"
    for wish, status, code in [
        ({"cwd": "/not/there"}, 400, "invalid_request"),
        ({"env": {"PYTHONHOME": "/not/there"}}, 502, "kernel_start_failed"),
    ]:
        fresh.client.error("POST", path, status, code, json={"language": "python", "name": "again", **wish})
    assert fresh.context(language="python", name="again")["state"] != "dead"


def test_pythonpath_of_the_caller_is_added(fresh: Sandbox) -> None:
    context = fresh.context(language="python", env={"PYTHONPATH": "/caller/path"})
    got = fresh.run("import sys; print('/caller/path' in sys.path, 1)", context=context["id"])
    assert got["stdout"] == "True 1\n", got
    assert not any("$" in p for p in __import__("ast").literal_eval(fresh.run("import sys; sys.path")["text"]))


def test_contexts_are_kept_apart(client: Client) -> None:
    one, two = client.sandbox(template=TEMPLATE), client.sandbox(template=TEMPLATE)
    one.run("open('secret.txt', 'w').write('x')")
    where = one.run("import os; print(os.path.abspath('secret.txt'), os.getuid())")["stdout"].split()
    got = two.run(f"import os; print(os.getuid())\nopen({where[0]!r}).read()")
    assert got["status"] == "error" and got["error"]["name"] in ("PermissionError", "FileNotFoundError")
    if int(where[1]) != 0 and client.get("/readyz"):
        assert got["stdout"].strip() != "0"
    one.delete()
    two.delete()


def test_templates(client: Client) -> None:
    names = {t["name"] for t in client.get("/v1/templates")["items"]}
    assert {"code-interpreter-python", "base"} <= names and "code-interpreter-python-debian" not in names
    client.error("POST", "/v1/sandboxes", 404, "template_not_found", json={"template": "nope"})


def test_base_makes_its_kernel_on_first_use(client: Client) -> None:
    with client.sandbox(template="base") as sandbox:
        assert sandbox.get("/contexts")["items"] == []


def test_health_and_documents(client: Client, daemon: Daemon) -> None:
    bare = Client(daemon.url, None)
    assert bare.call("GET", "/healthz", expect=200) and bare.call("GET", "/readyz", expect=200)
    spec = yaml.safe_load(bare.call("GET", "/v1/openapi.yaml").text if bare.call("GET", "/v1/openapi.yaml").status_code == 200
                          else client.call("GET", "/v1/openapi.yaml").text)
    from openapi_spec_validator import validate
    validate(spec)
    metrics = client.call("GET", "/metrics", expect=200).text
    assert re.search(r"^sandal_\w+", metrics, re.M)
    assert "<html" in client.call("GET", "/docs", expect=200).text.lower()


def add_key(daemon: Daemon, *options: str) -> str:
    out = subprocess.run([str(BUILD / "sandald"), "keys", "add", "--state-dir", str(daemon.state), *options],
                         capture_output=True, text=True, check=True)
    return out.stdout.strip()


@pytest.fixture(scope="module")
def stranger(daemon: Daemon):
    c = Client(daemon.url, add_key(daemon, "--owner", "stranger"))
    yield c
    c.close()


def operations(client: Client) -> list[tuple[str, str, dict]]:
    spec = yaml.safe_load(client.call("GET", "/v1/openapi.yaml", expect=200).text)
    return [(method.upper(), path, op) for path, ops in spec["paths"].items() for method, op in ops.items()
            if method in ("get", "post", "put", "patch", "delete")]


def test_a_foreign_key_finds_nothing_on_any_operation(client: Client, stranger: Client, fresh: Sandbox) -> None:
    run = fresh.run("1")["run"]
    values = {"sandbox": fresh.id, "context": fresh.record["default_context"], "run": run}
    tried = 0
    for method, path, _ in operations(client):
        if "{" not in path or not re.search(r"\{(sandbox|context|run)\}", path):
            continue
        concrete = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m.group(1), "x")), path)
        body = {"code": "1", "value": "x", "cursor": 1} if method in ("POST", "PATCH") else None
        answer = stranger.call(method, concrete, json=body) if body is not None else stranger.call(method, concrete)
        assert answer.status_code in (404, 400, 501), f"{method} {concrete}: {answer.status_code} {answer.text}"
        if answer.status_code == 400:
            assert answer.json()["error"]["code"] == "invalid_request"
        assert fresh.id not in answer.text.replace(concrete, "") or answer.status_code == 404
        tried += 1
    assert tried >= 10
    assert fresh.get()["state"] == "running" and fresh.run("1")["text"] == "1"
    assert fresh.id not in stranger.call("GET", "/v1/sandboxes").text


def test_keys_and_scopes(daemon: Daemon, client: Client) -> None:
    bare = Client(daemon.url, None)
    bare.error("GET", "/v1/sandboxes", 401, "unauthorized")
    Client(daemon.url, "sk-sandal-wrong").error("GET", "/v1/sandboxes", 401, "unauthorized")
    viewer = Client(daemon.url, add_key(daemon, "--owner", "local", "--scopes", "attach:sbx-aaaaabbbbbbbbbbbbbbb"))
    alone = subprocess.run([str(BUILD / "sandald"), "keys", "add", "--state-dir", str(daemon.state), "--scopes",
                            "attach:sbx-aaaaareuse0000000000"], capture_output=True, text=True)
    assert alone.returncode != 0 and "--owner" in alone.stderr
    viewer.error("POST", "/v1/sandboxes", 403, "forbidden", json={"template": TEMPLATE})
    assert client.http.get("/v1/sandboxes", headers={"Authorization": "", "X-API-Key": client.key}).status_code == 200
    key = add_key(daemon, "--owner", "gone")
    gone = Client(daemon.url, key)
    gone.get("/v1/sandboxes")
    listed = subprocess.run([str(BUILD / "sandald"), "keys", "list", "--state-dir", str(daemon.state), "--json"],
                            capture_output=True, text=True, check=True).stdout
    assert key not in listed
    record = next(k for k in json.loads(listed) if k["owner"] == "gone")
    ident = record["id"]
    assert record["scopes"] == ["use"]
    assert record.keys() == client.get("/v1/keys")["items"][0].keys()
    subprocess.run([str(BUILD / "sandald"), "keys", "remove", ident, "--state-dir", str(daemon.state)], check=True)
    wait_for(lambda: gone.call("GET", "/v1/sandboxes").status_code == 401, 10)
    assert key not in daemon.log() and client.key not in daemon.log()


def test_keys_over_the_api(daemon: Daemon, client: Client, fresh: Sandbox) -> None:
    for body in ({}, {"name": None}, {"scopes": ["use"]}, {"name": "n", "owner": "carl"}):
        made = client.post("/v1/keys", body, expect=201)
        Client(daemon.url, made["key"]).get("/v1/sandboxes")
        client.delete(f"/v1/keys/{made['id']}")
        Client(daemon.url, made["key"]).error("GET", "/v1/sandboxes", 401, "unauthorized")
    made = client.post("/v1/keys", {"scopes": [f"attach:{fresh.id}"]}, expect=201)
    guest = Sandbox(Client(daemon.url, made["key"]), fresh.record)
    assert guest.run("1+1")["text"] == "2"
    guest.client.error("DELETE", fresh.path, 403, "forbidden")
    context = f"{fresh.path}/contexts/{fresh.get()['default_context']}"
    guest.run("kept = 42")
    guest.client.error("POST", f"{fresh.path}/contexts", 403, "forbidden", json={"language": "python"})
    guest.client.error("POST", f"{context}/reset", 403, "forbidden", json={})
    guest.client.error("DELETE", context, 403, "forbidden")
    guest.client.post(f"{context}/interrupt", {})
    assert guest.run("kept")["text"] == "42"
    other = Client(daemon.url, made["key"]).call("GET", "/v1/sandboxes/sbx-00000aaaaaaaaaaaaaaa")
    assert other.status_code in (403, 404)


def test_no_key_is_on_disk_in_plain(daemon: Daemon) -> None:
    key = daemon.key.encode()
    for path in daemon.state.rglob("*"):
        if path.is_file() and path.name not in ("key", "volumes.img"):  # the latter: gigabytes of holes
            assert key not in path.read_bytes(), path
    assert (daemon.state / "key").stat().st_mode & 0o777 == 0o600
