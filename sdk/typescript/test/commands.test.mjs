import assert from "node:assert/strict";
import { test } from "node:test";
import { all, failure, sandbox, until } from "./help.mjs";

const sb = await sandbox();

test("a command answers what it printed and how it ended", async () => {
  const r = await sb.exec("echo out; echo err >&2; exit 3");
  assert.equal(r.stdout, "out\n");
  assert.equal(r.stderr, "err\n");
  assert.equal(r.exitCode, 3);
  assert.equal(r.signal, null);
  assert.equal(r.timedOut, false);
});

test("a list is no shell's, env and cwd and stdin are the command's", async () => {
  assert.equal((await sb.exec(["echo", "$HOME; x"])).stdout, "$HOME; x\n");
  assert.equal((await sb.exec("echo $some_VAR; pwd; cat", { env: { some_VAR: "v" }, cwd: "/tmp", stdin: "last" })).stdout, "v\n/tmp\nlast");
});

test("a stream of a command", async () => {
  const command = sb.exec("echo 1; sleep 0.1; echo 2", { stream: true });
  const events = await all(command);
  assert.equal(events[0].type, "started");
  assert.equal(typeof events[0].pid, "number");
  assert.equal(events.filter((e) => e.type === "stdout").map((e) => e.text).join(""), "1\n2\n");
  assert.equal(events.at(-1).exitCode, 0);
  assert.equal((await command).exitCode, 0);
});

test("callbacks of a command", async () => {
  let out = "";
  await sb.exec("echo a; echo b", { onStdout: (text) => (out += text) });
  assert.equal(out, "a\nb\n");
});

test("its timeout kills it", async () => {
  const r = await sb.exec("sleep 60", { timeout: 0.3 });
  assert.equal(r.timedOut, true);
  assert.equal(r.signal, "SIGKILL");
});

test("an abort kills it", async () => {
  const abort = new AbortController();
  const error = failure(sb.exec("echo up; sleep 61", { signal: abort.signal, onStdout: () => abort.abort() }));
  assert.equal((await error).name, "AbortError");
  await until(async () => (await sb.exec("pgrep -f '^sleep 61'")).exitCode === 1);
});

test("a callback that throws fails the call and kills it", async () => {
  for (const [seconds, onStdout] of [[62, () => { throw new RangeError("mine"); }], [63, async () => { throw new RangeError("mine"); }]]) {
    assert.equal((await failure(sb.exec(`echo up; sleep ${seconds}`, { onStdout }))).message, "mine");
    await until(async () => (await sb.exec(`pgrep -f '^sleep ${seconds}'`)).exitCode === 1);
  }
});

test("a process in the background: input, events, end", async () => {
  const p = await sb.exec("read a; echo got $a; cat", { background: true });
  assert.equal(typeof p.pid, "number");
  await p.input("one\n");
  for await (const event of p.attach()) if (event.type === "stdout" && event.text.includes("got one")) break;
  await p.input(new TextEncoder().encode("two"));
  await p.eof();
  const r = await p.wait();
  assert.equal(r.stdout, "got one\ntwo");
  assert.equal((await p.refresh()).state, "exited");
  assert.ok((await sb.processes.list()).some((one) => one.pid === p.pid));
  await p.kill();
});

test("signals by name", async () => {
  const p = await sb.exec("trap 'echo term; exit 7' TERM; echo up; while :; do sleep 0.05; done", { background: true });
  for await (const event of p.attach()) if (event.type === "stdout") break;
  await p.signal("SIGTERM");
  const r = await p.wait();
  assert.equal(r.exitCode, 7);
  assert.match(r.stdout, /term/);
  assert.equal((await sb.processes.get(p.pid)).info.exitCode, 7);
});

test("a terminal has a size, which can change", async (t) => {
  let p;
  try {
    p = await sb.exec("stty size; read x; stty size", { background: true, pty: { cols: 100, rows: 30 } });
  } catch (error) {
    if (error.code === "not_supported") return t.skip(error.message);
    throw error;
  }
  for await (const event of p.attach()) if (event.type === "stdout" && event.text.includes("30 100")) break;
  await p.resize(90, 20);
  await p.input("\n");
  assert.match((await p.wait()).stdout, /20 90/);
});

test("a command that cannot be begun is told", async () => {
  assert.equal((await sb.exec(["/not/there"])).exitCode, 127);
  assert.equal((await failure(sb.exec("true", { cwd: "/not/there" }))).code, "not_found");
});
