import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { all, client, failure, sandbox, until } from "./help.mjs";

const sandal = client();
const sb = await sandbox({ metadata: { some_key: "v" } });

test("a sandbox is told with the SDK's names", async () => {
  assert.match(sb.id, /^sbx-/);
  assert.equal(sb.template, "code-interpreter-python");
  assert.equal(sb.state, "running");
  assert.deepEqual(sb.metadata, { some_key: "v" });
  assert.equal(typeof sb.info.createdAt, "string");
  assert.ok("memoryMib" in sb.info.limits);
  assert.equal((await sb.refresh()).id, sb.id);
});

test("get by name, update, list by metadata", async () => {
  const name = `sdk-${Date.now().toString(36)}`;
  await sb.update({ name, metadata: { mine: name } });
  assert.equal(sb.name, name);
  assert.equal((await sandal.sandboxes.get(name)).id, sb.id);
  const found = await sandal.sandboxes.list({ metadata: { mine: name } });
  assert.deepEqual(found.map((one) => one.id), [sb.id]);
  assert.deepEqual(await sandal.sandboxes.list({ metadata: { mine: "no" } }), []);
  const ids = (await all(sandal.sandboxes.list({ limit: 1 }))).map((one) => one.id); // by pages
  assert.ok(ids.includes(sb.id));
});

test("a sandbox ends with its block", async () => {
  let id;
  {
    const mine = await sandal.sandboxes.create({ template: "code-interpreter-python" });
    id = mine.id;
    await mine[Symbol.asyncDispose]();
    await mine[Symbol.asyncDispose](); // ended already is as good
  }
  const error = await failure(sandal.sandboxes.get(id));
  assert.equal(error.name, "NotFoundError");
  assert.equal(error.code, "sandbox_not_found");
  assert.equal(error.status, 404);
  await assert.rejects(sandal.sandboxes.kill(id), { code: "sandbox_not_found" });
});

test("contexts: create, get, list, rename, reset, interrupt, remove", async () => {
  const context = await sb.contexts.create({ language: "py", name: "first" });
  assert.equal(context.language, "python");
  assert.equal((await sb.contexts.get("first")).id, context.id);
  assert.equal((await sb.contexts.update(context, { name: "second" })).name, "second");
  assert.ok((await sb.contexts.list()).some((one) => one.id === context.id));
  assert.equal((await sandal.context(context.id)).sandbox, sb.id);
  await sb.runCode("x = 1", { context });
  assert.equal(await sb.contexts.interrupt(context), false);
  assert.equal((await sb.contexts.reset(context.id)).id, context.id);
  assert.equal((await sb.runCode("x", { context })).error.name, "NameError");
  const run = sb.runCode("import time\ntime.sleep(60)", { context, stream: true });
  await until(() => run.id !== null);
  await until(() => sb.contexts.interrupt(context));
  assert.equal((await run).status, "interrupted");
  await sb.contexts.remove(context);
  assert.equal((await failure(sb.contexts.get(context))).code, "context_not_found");
});

test("what the kernel offers", async () => {
  await sb.runCode("some_number = 41\nsome_list = [1, 2, 3]");
  const context = sb.info.defaultContext;
  const { matches } = await sb.contexts.complete(context, "some_n");
  assert.ok(matches.includes("some_number"), matches);
  const docs = await sb.contexts.inspect(context, "len");
  assert.ok(docs.found);
  assert.match(docs.formats["text/plain"], /number of items/);
  const variables = await sb.contexts.variables(context, { wait: 5 });
  assert.equal(variables.find((one) => one.name === "some_list").length, 3);
});

test("metrics", async (t) => {
  try {
    assert.equal((await sb.metrics()).sandbox, sb.id);
  } catch (error) {
    if (error.code !== "not_supported") throw error;
    t.skip(error.message);
  }
});

test("usage, templates, health", async () => {
  assert.equal((await sb.usage()).sandbox, sb.id);
  assert.ok((await sb.usage()).activeSeconds > 0);
  assert.ok((await sandal.usage()).some((one) => one.sandbox === sb.id));
  assert.ok((await sandal.templates.list()).some((one) => one.name === "code-interpreter-python"));
  assert.equal((await sandal.templates.get("code-interpreter-python")).mainLanguage, "python");
  assert.equal((await sandal.health()).status, "ok");
  assert.ok(Array.isArray((await sb.networkLog()).items));
});

test("pause and resume keep the variables", async (t) => {
  await sb.runCode("kept = 'yes'");
  try {
    await sb.pause();
  } catch (error) {
    if (error.code === "not_supported") return t.skip(error.message);
    throw error;
  }
  assert.equal(sb.state, "paused");
  await sb.resume();
  assert.equal(sb.state, "running");
  assert.equal((await sb.runCode("kept")).text, "'yes'");
});

test("an exposed port has a URL", async (t) => {
  await sb.exec("mkdir -p /workspace/www; echo hello >/workspace/www/index.html");
  const server = await sb.exec("exec python3 -m http.server 8000 --directory /workspace/www", { background: true });
  let url;
  try {
    url = await sb.expose(8000);
  } catch (error) {
    if (error.code === "not_supported") return t.skip(error.message);
    throw error;
  }
  assert.equal(await (await fetch(url)).text(), "hello\n");
  await sb.unexpose(8000);
  assert.notEqual((await fetch(url)).status, 200);
  const guarded = await sb.expose(8000, { token: true });
  assert.equal((await fetch(guarded)).status, 200);
  assert.equal((await fetch(guarded.split("?")[0])).status, 401);
  await server.kill();
});

test("what this gateway lacks is a typed error", async (t) => {
  for (const call of [() => sb.fork({ count: 2 }), () => sb.snapshot(), () => sandal.snapshots.list()]) {
    try {
      await call();
      t.diagnostic("this gateway has it");
    } catch (error) {
      assert.equal(error.name, "NotSupportedError");
      assert.equal(error.code, "not_supported");
      assert.equal(error.status, 501);
    }
  }
});

test("a wrong key is an AuthenticationError, for runs too", async () => {
  const other = client({ apiKey: "sk-wrong" });
  const error = await failure(other.sandboxes.list());
  assert.equal(error.name, "AuthenticationError");
  assert.equal(error.status, 401);
  const { Sandbox } = await import(process.env.SANDAL_TEST_ENTRY ?? "../dist/esm/index.js");
  assert.ok(sb instanceof Sandbox);
  const made = await sandal.sandboxes.get(sb.id);
  assert.equal((await failure(other.sandboxes.get(made.id))).code, "unauthorized");
});

test("a field at fault is named", async () => {
  const error = await failure(sandal.sandboxes.create({ timeout: -1 }));
  assert.equal(error.name, "InvalidRequestError");
  assert.equal(error.code, "invalid_request");
  assert.equal(error.pointer, "/timeout");
  assert.ok(error.requestId);
  const run = await failure(sb.runCode("1", { language: "cobol" }));
  assert.equal(run.code, "language_not_found");
  assert.equal(run.status, 400);
});

test("keys: made, listed, used, removed", async () => {
  const key = await sandal.keys.create({ name: "sdk", scopes: ["use"] });
  assert.ok((await sandal.keys.list()).some((one) => one.id === key.id));
  const other = client({ apiKey: key.key });
  assert.ok(Array.isArray(await other.sandboxes.list()));
  assert.equal((await failure(other.keys.list())).name, "PermissionDeniedError");
  await sandal.keys.delete(key.id);
  assert.equal((await failure(other.sandboxes.list())).name, "AuthenticationError");
});

test("ids do not lead out of their place in a URL", async () => {
  for (const id of ["..", ".", ""]) assert.equal((await failure(sandal.sandboxes.get(id))).code, "invalid_request");
  assert.equal((await failure(sandal.sandboxes.get("../templates"))).code, "sandbox_not_found");
});

test("a gateway that is not there is a ConnectionError", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  const none = client({ baseUrl: `http://127.0.0.1:${port}`, maxRetries: 1 });
  const error = await failure(none.sandboxes.list());
  assert.equal(error.name, "ConnectionError");
  assert.equal(error.code, "connection_failed");
});
