import assert from "node:assert/strict";
import { test } from "node:test";
import { all, client, failure, sandbox, until } from "./help.mjs";

const sb = await sandbox();

test("a value is text and a result", async () => {
  const r = await sb.runCode("print('out')\n1 + 1");
  assert.equal(r.text, "2");
  assert.equal(r.stdout, "out\n");
  assert.equal(r.stderr, "");
  assert.equal(r.error, null);
  assert.equal(r.status, "ok");
  assert.ok(r.ok);
  assert.equal(r.results.length, 1);
  assert.ok(r.results[0].main);
  assert.equal(r.raise(), r);
  assert.match(r.run, /^run-/);
  assert.equal(typeof r.executionCount, "number");
  assert.equal(typeof r.usage.wallMs, "number");
});

test("variables stay, and contexts do not share them", async () => {
  const other = await sb.contexts.create({ language: "python" });
  await sb.runCode("x = 1");
  await sb.runCode("x = 2", { context: other.id });
  assert.equal((await sb.runCode("print(x)")).text, "1");
  assert.equal((await sb.runCode("print(x)", { context: other })).text, "2");
  await sb.contexts.remove(other);
});

test("an error is told and raised", async () => {
  const r = await sb.runCode("print('before')\n1/0");
  assert.equal(r.status, "error");
  assert.equal(r.error.name, "ZeroDivisionError");
  assert.ok(Array.isArray(r.error.traceback) && r.error.traceback.length > 0);
  assert.equal(r.error.state, "kept");
  assert.equal(r.stdout, "before\n");
  assert.throws(() => r.raise(), { name: "ExecutionError", code: "error", errorName: "ZeroDivisionError", execution: r });
});

test("a stream has every event in order, and the result last", async () => {
  const run = sb.runCode("import sys, time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.05)\nprint('e', file=sys.stderr)\n7", { stream: true });
  const events = await all(run);
  assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => i));
  assert.equal(events[0].type, "started");
  assert.equal(typeof events[0].executionCount, "number");
  assert.equal(events.filter((e) => e.type === "stdout").map((e) => e.text).join(""), "0\n1\n2\n");
  assert.equal(events.filter((e) => e.type === "stderr").map((e) => e.text).join(""), "e\n");
  const last = events.at(-1);
  assert.equal(last.type, "result");
  assert.equal(last.results[0].text, "7");
  assert.equal(await run, last); // awaited after the loop
  assert.equal(run.id, last.run);
});

test("a stream may be awaited without a loop", async () => {
  assert.equal((await sb.runCode("6 * 7", { stream: true })).text, "42");
});

test("a run is iterated once", async () => {
  const run = sb.runCode("1", { stream: true });
  await all(run);
  assert.throws(() => run[Symbol.asyncIterator](), TypeError);
});

test("callbacks get what comes", async () => {
  const got = { out: "", err: "", results: [], types: [] };
  const r = await sb.runCode("import sys\nprint('o')\nprint('e', file=sys.stderr)\ndisplay(1)\n2", {
    onStdout: (text) => (got.out += text),
    onStderr: (text) => (got.err += text),
    onResult: (result) => got.results.push(result.text),
    onEvent: (event) => got.types.push(event.type),
  });
  assert.deepEqual(got.results, ["1", "2"]);
  assert.equal(got.out, "o\n");
  assert.equal(got.err, "e\n");
  assert.equal(got.types.at(-1), "result");
  assert.equal(r.text, "2");
});

const LONG = "import sys, time\nprint('o', flush=True)\nprint('e', file=sys.stderr, flush=True)\ndisplay(1)\ninput()\ntime.sleep(120)";
const mine = new RangeError("mine");
const throws = () => {
  throw mine;
};

for (const [how, callback] of [["throws", throws], ["rejects", async () => throws()]]) {
  for (const name of ["onStdout", "onStderr", "onResult", "onEvent", "onInput"]) {
    test(`${name} that ${how} fails the call and interrupts the run`, async () => {
      const context = await sb.contexts.create({ language: "python" });
      assert.equal(await failure(sb.runCode(LONG, { context, onInput: () => "", [name]: callback })), mine);
      await until(async () => (await sb.runs.list({ context }))[0].status === "interrupted");
      assert.equal((await sb.runCode("5", { context })).text, "5");
      await sb.contexts.remove(context);
    });
  }
}

test("onInput that gives no string is a TypeError", async () => {
  const error = await failure(sb.runCode("input()", { onInput: () => undefined }));
  assert.equal(error.name, "TypeError");
  assert.match(error.message, /onInput gave undefined/);
});

test("onInput of a run that ended meanwhile keeps nothing back", async () => {
  let late;
  const r = await sb.runCode("input()", { timeout: 0.5, onInput: () => new Promise((_, reject) => (late = reject)) });
  assert.equal(r.status, "timeout");
  late(mine); // too late: nobody hears of it
});

test("a call ends after its callbacks' promises, and fails with them", async () => {
  let done = 0;
  const slow = async () => {
    await new Promise((resolve) => setTimeout(resolve, 200)); // longer than the run
    done++;
  };
  const run = sb.runCode("print(1)\n2", { stream: true, onStdout: slow, onResult: slow });
  await all(run);
  assert.equal(done, 2);
  assert.equal((await run).text, "2");
  const late = async (event) => {
    if (event.type !== "result") return;
    await slow();
    throw mine;
  };
  assert.equal(await failure(sb.runCode("1", { onEvent: late })), mine);
  assert.equal(await failure(all(sb.runCode("1", { stream: true, onEvent: late }))), mine);
});

test("a figure has its bytes", async () => {
  const r = (await sb.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")).raise();
  const figure = r.results.find((result) => result.type === "image/png");
  const png = [0x89, 0x50, 0x4e, 0x47];
  assert.deepEqual([...figure.toBytes().slice(0, 4)], png);
  const blob = figure.toBlob();
  assert.equal(blob.type, "image/png");
  assert.equal(blob.size, figure.toBytes().length);
  const { mkdtemp, readFile, readdir, rm } = await import("node:fs/promises");
  const dir = await mkdtemp("/tmp/sandal-sdk-");
  assert.equal(await figure.save(`${dir}/figure.png`), `${dir}/figure.png`);
  assert.deepEqual([...(await readFile(`${dir}/figure.png`)).subarray(0, 4)], png);
  await figure.save(`${dir}/figure.TXT`);
  assert.equal(await readFile(`${dir}/figure.TXT`, "utf8"), figure.formats["text/plain"]);
  const error = await failure(figure.save(`${dir}/figure.svg`)); // and no picture of another type in it
  assert.equal(error.code, "no_such_format");
  assert.match(error.message, /no image\/svg\+xml, but .*image\/png/);
  assert.deepEqual((await readdir(dir)).sort(), ["figure.TXT", "figure.png"]);
  await figure.save(`${dir}/figure.other`);
  assert.deepEqual([...(await readFile(`${dir}/figure.other`)).subarray(0, 4)], png);
  await rm(dir, { recursive: true });
});

test("a data frame has rows and columns", async () => {
  const r = await sb.runCode("import pandas as pd\npd.DataFrame({'city': ['Ulm', 'Bern'], 'n': [1, None]})");
  const [table] = r.results;
  assert.equal(table.type, "text/html");
  assert.deepEqual(table.rows(), [{ city: "Ulm", n: 1 }, { city: "Bern", n: null }]);
  assert.deepEqual(table.columns(), { city: ["Ulm", "Bern"], n: [1, null] });
  assert.deepEqual(table.dataFrame.shape, [2, 2]);
  const plain = (await sb.runCode("1")).results[0];
  assert.equal(plain.dataFrame, null);
  assert.throws(() => plain.rows(), { code: "no_such_format" });
});

test("names that clients choose stay as they are", async () => {
  const r = await sb.runCode("from IPython.display import JSON\nJSON({'snake_name': {'inner_name': 1}})");
  const json = r.results.find((result) => result.type === "application/json");
  assert.deepEqual(json.data, { snake_name: { inner_name: 1 } });
  const env = await sb.runCode("import os\nos.environ['some_NAME']", { env: { some_NAME: "v" } });
  assert.equal(env.text, "'v'");
});

test("an abort ends the call with its reason and interrupts the run", async () => {
  const abort = new AbortController();
  const reason = new Error("enough");
  const context = await sb.contexts.create({ language: "python" });
  const run = sb.runCode("import time\nprint('up', flush=True)\nwhile True: time.sleep(0.01)", {
    context, signal: abort.signal, onStdout: () => abort.abort(reason),
  });
  assert.equal(await failure(run), reason);
  await until(async () => (await sb.contexts.get(context)).state === "idle");
  const [record] = await sb.runs.list({ context });
  assert.equal(record.status, "interrupted");
  await sb.contexts.remove(context);
});

test("an abort before the first event interrupts too", async () => {
  const context = await sb.contexts.create({ language: "python" });
  await sb.runCode("1", { context }); // the kernel is up
  const abort = new AbortController();
  const run = sb.runCode("import time\ntime.sleep(60)", { context, signal: abort.signal });
  abort.abort();
  assert.equal((await failure(run)).name, "AbortError");
  await until(async () => {
    const records = await sb.runs.list({ context });
    return records.length < 2 || records.every((record) => ["ok", "interrupted"].includes(record.status));
  });
  assert.equal((await sb.runCode("5", { context })).text, "5");
  await sb.contexts.remove(context);
});

test("a signal that is aborted already sends nothing", async () => {
  const before = (await sb.runs.list()).length;
  const error = await failure(sb.runCode("1", { signal: AbortSignal.abort() }));
  assert.equal(error.name, "AbortError");
  assert.equal((await sb.runs.list()).length, before);
});

test("a timeout is the run's end, and not an exception", async () => {
  const begin = performance.now();
  const r = await sb.runCode("import time\nprint('a', flush=True)\ntime.sleep(60)", { timeout: 0.5 });
  const took = (performance.now() - begin) / 1000;
  assert.equal(r.status, "timeout");
  assert.equal(r.error.name, "TimeoutError");
  assert.equal(r.stdout, "a\n");
  assert.ok(took >= 0.5 && took < 15, `took ${took} s`); // a kernel may be slow to be interrupted on a busy machine
});

test("interrupt() of a run ends it as interrupted", async () => {
  const run = sb.runCode("import time\ntime.sleep(60)", { stream: true });
  await run.interrupt();
  assert.equal((await run).status, "interrupted");
});

test("leaving the loop leaves the run alone, and it can be followed anew", async () => {
  let id;
  for await (const event of sb.runCode("import time\nprint('a', flush=True)\ntime.sleep(0.3)\nprint('b')\n'end'", { stream: true })) {
    id = event.run;
    if (event.type === "stdout") break;
  }
  const again = sb.runs.attach(id);
  const events = await all(again);
  assert.equal(events[0].seq, 0);
  assert.equal(events.at(-1).stdout, "a\nb\n");
  const from = await all(sb.runs.attach(id, { after: events[0].seq }));
  assert.equal(from[0].seq, 1);
  const behind = await sb.runs.attach(id, { after: events.at(-1).seq }); // there is nothing more: the record tells
  assert.equal(behind.text, "'end'");
  assert.equal((await sb.runs.get(id)).text, "'end'");
});

test("leaving the loop interrupts where onDisconnect says so", async () => {
  let id;
  for await (const event of sb.runCode("import time\nprint('a', flush=True)\ntime.sleep(60)", { stream: true, onDisconnect: "interrupt" })) {
    id = event.run;
    if (event.type === "stdout") break;
  }
  await until(async () => (await sb.runs.get(id)).status === "interrupted");
});

test("late output comes with late: true", async () => {
  const r = await sb.runCode("import threading, time\ndef f():\n    time.sleep(0.5)\n    print('late')\nthreading.Thread(target=f).start()", { retain: 60 });
  const seen = [];
  for await (const event of sb.runs.attach(r.run, { late: true })) {
    seen.push(event.type);
    if (event.late && event.type === "stdout") break;
  }
  assert.ok(seen.indexOf("result") < seen.lastIndexOf("stdout"));
});

test("input() asks a function, a list, or raises", async () => {
  const asked = [];
  const r = await sb.runCode("a = input('first? ')\nb = input('second? ')\n(a, b)", {
    onInput: async (request) => {
      asked.push(request.prompt);
      return `answer ${asked.length}`;
    },
  });
  assert.equal(r.text, "('answer 1', 'answer 2')");
  assert.deepEqual(asked, ["first? ", "second? "]);
  assert.equal((await sb.runCode("input()", { stdin: ["line"] })).text, "'line'");
  assert.equal((await sb.runCode("input()")).status, "error");
  const run = sb.runCode("input('? ')", { stream: true });
  for await (const event of run) if (event.type === "input") await run.input("by hand");
  assert.equal((await run).text, "'by hand'");
});

test("the same key runs once", async () => {
  await sb.runCode("n = 0");
  const [a, b] = await Promise.all([1, 2].map(() => sb.runCode("n += 1\nn", { key: "once" })));
  assert.equal(a.run, b.run);
  assert.equal((await sb.runCode("n")).text, "1");
  const error = await failure(sb.runCode("n += 2", { key: "once" }));
  assert.equal(error.code, "key_reused");
  assert.equal(error.name, "ConflictError");
});

test("code that is too large for a frame goes its way", async () => {
  const r = await sb.runCode(`len("""${"x".repeat(3_000_000)}""")`);
  assert.equal(r.text, "3000000");
});

test("long output comes whole", async () => {
  const r = await sb.runCode("print('é' * 2_000_000)");
  assert.equal(r.stdout.length, 2_000_001);
});

test("limits of a run cut and tell", async () => {
  const r = await sb.runCode("print('x' * 100_000)", { limits: { outputBytes: 10_000 } });
  assert.equal(r.status, "ok");
  assert.ok(r.truncated.stdout > 0);
});

test("what nobody awaits is not lost in silence, what a loop tells is told once", async () => {
  const seen = [];
  const listen = (error) => seen.push(error);
  process.on("unhandledRejection", listen);
  const error = await failure(all(sb.runCode("1", { context: "not-there", stream: true })));
  assert.equal(error.code, "context_not_found");
  await new Promise((resolve) => setTimeout(resolve, 50)); // rejections are reported after a turn
  process.off("unhandledRejection", listen);
  assert.deepEqual(seen, []);
});

test("a closed client opens its sockets anew", async () => {
  const sandal = client();
  const mine = await sandal.sandboxes.get(sb.id);
  assert.equal((await mine.runCode("1")).text, "1");
  sandal.close();
  assert.equal((await mine.runCode("2")).text, "2");
  sandal.close();
});
