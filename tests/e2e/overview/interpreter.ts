// Every call and every shape of the overview of the code interpreter, for TypeScript: state, contexts, streams, results, errors.
import assert from "node:assert/strict";
import { NotSupportedError, Sandal } from "@sandal/sdk";

const apiKey = process.env["SANDAL_API_KEY"]!;
const sandal = new Sandal({ apiKey });
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });

// Variables and imports of one call are there in the next.
await sb.fs.write("sales.csv", "region,amount\nnorth,3\nsouth,5\nnorth,4\n");
await sb.runCode("import pandas as pd\nsales = pd.read_csv('sales.csv')");
const table = await sb.runCode("sales.groupby('region').sum()");
assert.match(table.text, /north\s+7/);
assert.equal(table.results.length, 1);
assert.equal(table.results[0]!.type, "text/html");

// Contexts do not share them, and go on until they are reset.
const first = await sb.contexts.create({ language: "python" });
const second = await sb.contexts.create({ language: "python" });
await sb.runCode("x = 1", { context: first.id });
await sb.runCode("x = 2", { context: second.id });
assert.equal((await sb.runCode("print(x)", { context: first.id })).text, "1");
assert.equal((await sb.runCode("print(x)", { context: second.id })).text, "2");
await sb.contexts.reset(first.id);
assert.equal((await sb.runCode("x", { context: first.id })).error?.name, "NameError");

// What a run prints comes while it runs.
const run = sb.runCode("import sys, time\nfor i in range(3):\n    print(i)\n    time.sleep(0.2)\nprint('!', file=sys.stderr)\ni", {
  context: second.id,
  stream: true,
});
let out = "";
let err = "";
let ended = 0;
let firstAt = 0;
for await (const chunk of run) {
  if (chunk.type === "stdout") {
    firstAt ||= performance.now();
    out += chunk.text;
  }
  if (chunk.type === "stderr") err += chunk.text;
  if (chunk.type === "result") {
    ended++;
    assert.equal(chunk.results[0]!.text, "2");
    assert.ok(performance.now() - firstAt > 300, "the first line did not come before the end");
  }
}
assert.equal(out, "0\n1\n2\n");
assert.equal(err, "!\n");
assert.equal(ended, 1);

// What is rendered is typed.
const plot = await sb.runCode("import matplotlib.pyplot as plt\nplt.plot([3, 1, 2])\nplt.title('t')\nplt.show()", { context: second.id });
const pictures = plot.results.filter((r) => r.type === "image/png");
assert.equal(pictures.length, 1);
assert.equal(atob(pictures[0]!.data).slice(1, 4), "PNG");
const shown = await sb.runCode("from IPython.display import JSON, display\ndisplay(JSON({'a': [1]}))\n'plain'");
assert.deepEqual(shown.results.map((r) => r.type), ["application/json", "text/plain"]);
assert.deepEqual(shown.results[0]!.data, { a: [1] });

// An error has a name, a message and a traceback.
const failed = await sb.runCode("def f():\n    return {}['key']\nf()");
assert.ok(failed.error);
assert.equal(failed.error.name, "KeyError");
assert.equal(failed.error.message, "'key'");
assert.ok(failed.error.traceback.some((line) => line.includes("f()")));

// The whole sandbox is there on the same instance.
const bytes = Buffer.from("a,b\n1,2\n");
await sb.fs.write("/workspace/small.csv", bytes);
assert.equal((await sb.runCode("open('small.csv').read()")).text, "'a,b\\n1,2\\n'");
assert.equal((await sb.exec("pip --version")).exitCode, 0);
await sb.exec("exec python3 -m http.server 8000", { background: true });
const url = await sb.expose(8000);
assert.equal(typeof url, "string");
assert.equal(await (await fetch(`${url}small.csv`)).text(), "a,b\n1,2\n");
await sb.runCode("kept = 'through the pause'");
await sb.pause().catch((error: unknown) => {
  if (!(error instanceof NotSupportedError)) throw error; // an ordinary user's gateway often has no freezer
});
assert.equal((await sb.runCode("kept")).text, "'through the pause'");

await sb.kill();
console.log("ok");
