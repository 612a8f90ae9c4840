"""@sandal/sdk: the package, its types, its tests on every platform, the programs that its documents show."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
from pathlib import Path

import httpx
import pytest
from conftest import ROOT, RUNTIMES, SDK, TOOLS, Suites, any_node, check, platform
from harness.client import Client
from harness.daemon import Daemon, clean_environment
from harness.pages import snippets

KB = 1000

# What each platform shows that the one before does not: sockets; HTTP alone; the oldest Node; other engines.
SUITES = {
    "node24": ["cuts", "runs", "objects", "files", "commands", "parallel", "tools", "units"],
    "node20": ["cuts", "runs", "commands", "units"],
    "node18": ["files", "commands", "units"],
    "bun": ["runs", "files", "commands", "units"],
    "deno": ["runs", "files", "commands", "units"],
}


@pytest.mark.parametrize("suite", [(name, file) for name, files in SUITES.items() for file in files], ids="-".join)
def test_suite(suite: tuple[str, str], suites: Suites) -> None:
    platform(suite[0])
    said = suites.result(*suite)
    assert re.search(r"# pass [1-9]|[1-9]\d* pass", said), said


def test_package_holds_what_it_should(package: Path) -> None:
    size = package.stat().st_size
    assert size <= 100 * KB, size
    with tarfile.open(package) as tar:
        names = {name.removeprefix("package/") for name in tar.getnames()}
    assert {"package.json", "README.md", "LICENSE", "dist/esm/index.js", "dist/esm/index.d.ts", "dist/cjs/index.js", "dist/cjs/index.d.ts",
            "dist/cjs/package.json"} <= names
    strange = [name for name in names if not re.fullmatch(r"(package\.json|README\.md|LICENSE|dist/(esm|cjs)/[a-z]+(\.d\.ts|\.js|\.json))", name)]
    assert not strange
    described = json.loads((SDK / "package.json").read_text())
    assert "dependencies" not in described, "a platform has all that is needed"


def test_types_are_those_of_the_api(built: Path, daemon: Daemon, tmp_path: Path) -> None:
    """The daemon's own description makes the same types as the document that the build took."""
    description = tmp_path / "openapi.yaml"
    description.write_text(httpx.get(f"{daemon.url}/v1/openapi.yaml").raise_for_status().text)
    check([any_node(), str(built / "scripts/generate.mjs"), "--check"], env={**os.environ, "SANDAL_OPENAPI": str(description)})


@pytest.mark.parametrize(("compiler", "libraries", "module"), [
    ("typescript", "dom", "ESNext"), ("typescript", "node", "NodeNext"), ("typescript-5", "node", "NodeNext")])
def test_types_strict(project: Path, compiler: str, libraries: str, module: str) -> None:
    folder = project / f"types-{compiler}-{libraries}-{module}"
    shutil.copytree(SDK / "test/types", folder)
    config = json.loads((folder / "tsconfig.json").read_text())
    options = config["compilerOptions"]
    options["module"], options["moduleResolution"] = module, "NodeNext" if module == "NodeNext" else "bundler"
    if libraries == "dom":
        options["lib"] = ["ES2022", "DOM", "DOM.AsyncIterable"]
    else:
        options["lib"], options["types"] = ["ES2022"], ["node"]
    (folder / "tsconfig.json").write_text(json.dumps(config))
    check([any_node(), str(TOOLS / compiler / "bin/tsc"), "-p", str(folder)])


def test_types_of_require(project: Path) -> None:
    folder = project / "types-cjs"
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "commonjs"}')
    (folder / "use.cts").write_text('import sdk = require("@sandal/sdk");\nexport const s: sdk.Sandal = new sdk.Sandal();\n')
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": {
        "target": "ES2022", "module": "NodeNext", "strict": True, "noEmit": True, "types": [], "lib": ["ES2022", "DOM"]}, "include": ["use.cts"]}))
    check([any_node(), str(TOOLS / "typescript/bin/tsc"), "-p", str(folder)])


@pytest.mark.parametrize("name", ["node18", "bun", "deno"])
def test_require(project: Path, environment: dict[str, str], name: str) -> None:
    script = project / "require.cjs"
    script.write_text("""
        const { Sandal, NotFoundError } = require("@sandal/sdk");
        (async () => {
          const sandal = new Sandal();
          const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });
          console.log((await sb.runCode("6 * 7")).text);
          const r = await sb.runCode("import matplotlib.pyplot as plt; plt.plot([1]); plt.show()");
          await r.results.find((one) => one.type === "image/png").save("required.png");
          await sb.kill();
          await sandal.sandboxes.get(sb.id).catch((error) => console.log(error instanceof NotFoundError));
        })();
    """)
    words = ["run", "-A", "--no-config"] if name == "deno" else []
    (project / "required.png").unlink(missing_ok=True)
    said = check([platform(name), *words, str(script)], env=environment, cwd=project, timeout=60)  # it ends by itself
    assert said.split() == ["42", "true"]
    assert (project / "required.png").read_bytes().startswith(b"\x89PNG")


# --- Programs ---------------------------------------------------------------------------------------


def run_program(project: Path, environment: dict[str, str], source: Path | str, name: str = "program", runtime: str = "node24") -> str:
    program = project / f"{name}.ts"
    program.write_text(source.read_text() if isinstance(source, Path) else source)
    words = {"deno": ["run", "-A", "--no-check", "--no-config", "--node-modules-dir=manual"]}.get(runtime, [])
    return check([platform(runtime), *words, str(program)], env=environment, cwd=project, timeout=120)


@pytest.mark.parametrize("runtime", ["node24", "deno"])
def test_overview(project: Path, environment: dict[str, str], runtime: str) -> None:
    said = run_program(project, environment, ROOT / "tests/e2e/overview/interpreter.ts", f"interpreter-{runtime}", runtime)
    assert said.strip() == "ok"


def test_overview_templates(project: Path, environment: dict[str, str]) -> None:
    names = ["python", "node", "r"]
    here = [f"code-interpreter-{name}" for name in names if Path(f"/opt/sandal/{name}").exists() or name == "python"]
    said = run_program(project, {**environment, "TEMPLATES": ",".join(here)}, ROOT / "tests/e2e/overview/templates.ts", "templates")
    assert said.strip() == "ok"


class Model(http.server.BaseHTTPRequestHandler):
    """A model of the Messages API that wants code run twice, the second time for the first one's error."""

    CODES = ["sales.groupby('region').revenue.sum().idxmax()",
             "import pandas as pd\nsales = pd.read_csv('sales.csv')\nsales.groupby('region').revenue.sum().idxmax()"]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # noqa: N802
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = [block for message in request["messages"] if message["role"] == "user" and isinstance(message["content"], list)
                 for block in message["content"]]
        if len(asked) < len(self.CODES):
            content = [{"type": "text", "text": "Let me see."},
                       {"type": "tool_use", "id": f"toolu_{len(asked)}", "name": "run_code", "input": {"code": self.CODES[len(asked)]}}]
        else:
            content = [{"type": "text", "text": f"It is {asked[-1]['content']}."}]
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": content,
                  "stop_reason": "tool_use" if len(content) > 1 else "end_turn", "stop_sequence": None,
                  "usage": {"input_tokens": 1, "output_tokens": 1}}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


def test_overview_agent(project: Path, environment: dict[str, str]) -> None:
    if not (RUNTIMES / "@anthropic-ai").exists():
        pytest.skip("the model's client is not installed: scripts/setup --test")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        said = run_program(project, {**environment, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}"},
                           ROOT / "tests/e2e/overview/agent.ts", "agent")
        model.shutdown()
    assert said.strip() == "ok"


EXAMPLES = {
    "quickstart": "Bern  134794",
    "stream": "TimeoutError\n'you'",
    "plot": "points.png",
    "server": "<h1>hello</h1>\n\nSIGTERM",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(project: Path, environment: dict[str, str], name: str) -> None:
    assert EXAMPLES[name] in run_program(project, environment, SDK / f"examples/{name}.ts", name)


def test_every_example_is_run() -> None:
    assert {path.stem for path in (SDK / "examples").iterdir()} == set(EXAMPLES)


def pauses(environment: dict[str, str]) -> bool:
    """An ordinary user's gateway often has no freezer."""
    client = Client(environment["SANDAL_URL"], environment["SANDAL_API_KEY"])
    with client.sandbox() as sandbox:
        status = client.call("POST", f"{sandbox.path}/pause", json={}).status_code
    client.close()
    assert status in (200, 501)
    return status == 200


@pytest.mark.parametrize("document", ["docs/quick-start.md", "docs/sdk-typescript.md", "sdk/typescript/README.md"])
def test_snippets(project: Path, environment: dict[str, str], document: str) -> None:
    """A document's snippets, in order, are one program: each goes on where the one before stopped."""
    path = SDK / "README.md" if document.startswith("sdk") else ROOT / document
    blocks = snippets(path, "ts")
    assert blocks
    imports: dict[str, None] = {}
    bodies = []
    for block in blocks:
        lines = block.split("\n")
        imports.update({line: None for line in lines if line.startswith("import ")})
        bodies.append("\n".join(line for line in lines if not line.startswith("import ")))
    # A block of its own each, so that names may come again; what begins with `const sandal` or `const sb` is there for all that follow.
    program = "\n".join(imports) + "\nvar sandal, sb, context;\n" + "".join(
        "{\n" + re.sub(r"^const (sandal|sb|context) = ", r"\1 = ", body, flags=re.M) + "\n}\n" for body in bodies)
    if not pauses(environment):
        program = program.replace("await sb.pause();", "")
    end = "" if "await sb.kill();" in program else "\nawait sb.kill();\n"
    run_program(project, environment, program + end, f"snippets-{path.stem}")


def test_overhead(project: Path, environment: dict[str, str]) -> None:
    """The bench runs; its figure is asserted nowhere else than in docs/benchmarks.md."""
    said = check([platform("node24"), str(ROOT / "tests/bench/sdk_typescript.mjs"), "--rounds", "30"], cwd=project,
                 env={**environment, "SANDAL_TEST_ENTRY": str(project / "node_modules/@sandal/sdk/dist/esm/index.js")})
    figures = json.loads(said)
    assert set(figures) == {"rounds", "raw_p50_ms", "sdk_p50_ms", "added_p50_ms"}


def test_a_gateway_that_is_killed_ends_the_run_with_its_cause(project: Path) -> None:
    """The stream goes on over the gateway's end and its next start; the caller sees one run, and its true end."""
    program = """
        import { Sandal } from "@sandal/sdk";
        const sandal = new Sandal();
        const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });
        await sb.runCode("kept = 'yes'");
        const seqs = [];
        for await (const event of sb.runCode("import time\\nprint('up', flush=True)\\ntime.sleep(3)", { stream: true })) {
          seqs.push(event.seq);
          if (event.type === "stdout") console.log("up");
          if (event.type === "result") console.log(event.status, event.stdout === "up\\n", event.error.state);
        }
        console.log(seqs.every((seq, i) => seq === i));
        console.log((await sb.runCode("kept")).text);
        await sb.kill();
    """
    with socket.socket() as probe:  # the next gateway has to come back where this one was
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Daemon(listen=f"127.0.0.1:{port}") as own:
        script = project / "killed.mjs"
        script.write_text(program)
        environment = {**clean_environment(), "SANDAL_URL": own.url, "SANDAL_API_KEY": own.key or ""}
        for name in ("node24", "node20"):  # by WebSocket, by HTTP
            with subprocess.Popen([platform(name), str(script)], env=environment, cwd=project, text=True, stdout=subprocess.PIPE) as process:
                assert process.stdout and process.stdout.readline() == "up\n"
                os.kill(own.gateway_pid(), signal.SIGKILL)
                assert process.communicate(timeout=60)[0].splitlines() == ["gateway_restart true kept", "true", "'yes'"]
