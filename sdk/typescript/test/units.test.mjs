// What no gateway is needed for: where a client looks for its settings, what it asks again, and how long it waits.
import assert from "node:assert/strict";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { failure } from "./help.mjs";

const { Sandal } = await import(process.env.SANDAL_TEST_ENTRY ?? "../dist/esm/index.js");

/** A server that answers by a list of answers, and keeps what it was asked. */
async function gateway(...answers) {
  const asked = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      asked.push({ method: request.method, url: request.url, headers: request.headers, body });
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (answer === "silence") return;
      if (typeof answer === "string" && answer.startsWith("{")) return response.end(answer);
      if (answer === "cut") return request.socket.destroy();
      const [status, json, headers = {}] = answer;
      response.writeHead(status, { "Content-Type": "application/json", ...headers });
      response.end(json === null ? "" : JSON.stringify(json));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    asked,
    url: `http://127.0.0.1:${server.address().port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections?.();
      await new Promise((resolve) => server.close(resolve));
    },
    close() {
      server.closeAllConnections?.();
      server.close();
    },
  };
}

const SANDBOX = { id: "sbx-1", name: null, template: "t", state: "running", metadata: {} };
const NO = (code, status, headers) => [status, { error: { code, message: "no", hint: "do this", pointer: "/a" } }, headers];

async function withGateway(answers, options, act) {
  const fake = await gateway(...answers);
  try {
    return await act(new Sandal({ baseUrl: fake.url, apiKey: "k", transport: "http", ...options }), fake);
  } finally {
    fake.close();
  }
}

test("options win over the environment, and that over what is usual", async () => {
  const old = { url: process.env.SANDAL_URL, key: process.env.SANDAL_API_KEY };
  const urls = [];
  const fetch = async (url, init) => {
    urls.push([url, init.headers.Authorization]);
    return new Response(JSON.stringify({ status: "ok" }));
  };
  try {
    process.env.SANDAL_URL = "http://env.test:1/base/";
    process.env.SANDAL_API_KEY = "env";
    await new Sandal({ fetch }).health();
    await new Sandal({ fetch, baseUrl: "https://given.test", apiKey: "given" }).health();
    delete process.env.SANDAL_URL;
    await new Sandal({ fetch }).health();
  } finally {
    process.env.SANDAL_URL = old.url;
    process.env.SANDAL_API_KEY = old.key;
  }
  assert.deepEqual(urls, [
    ["http://env.test:1/base/healthz", "Bearer env"],
    ["https://given.test/healthz", "Bearer given"],
    ["http://127.0.0.1:8717/healthz", "Bearer env"],
  ]);
  assert.throws(() => new Sandal({ baseUrl: "ftp://x" }), { code: "invalid_request" });
  assert.throws(() => new Sandal({ maxRetries: -1 }), { code: "invalid_request" });
});

test("the key file of this machine is for gateways of this machine", { skip: typeof Deno !== "undefined" && "its process is not for tests to change" }, async () => {
  const dir = await mkdtemp("/tmp/sandal-sdk-");
  const old = { key: process.env.SANDAL_API_KEY, state: process.env.XDG_STATE_HOME, getuid: process.getuid };
  const keys = [];
  const fetch = async (_, init) => {
    keys.push(init.headers.Authorization);
    return new Response("{}");
  };
  try {
    delete process.env.SANDAL_API_KEY;
    process.env.XDG_STATE_HOME = dir;
    process.getuid = () => 1000;
    const early = new Sandal({ fetch, baseUrl: "http://127.0.0.1:1" });
    await early.health(); // there is no key yet
    await mkdir(`${dir}/sandal`);
    await writeFile(`${dir}/sandal/key`, "sk-file\n");
    await early.health();
    for (const baseUrl of ["http://localhost:1", "http://[::1]:1", "http://localhost.test", "http://127.0.0.1.test", "http://10.0.0.1"]) {
      await new Sandal({ fetch, baseUrl }).health();
    }
  } finally {
    process.env.SANDAL_API_KEY = old.key;
    if (old.state === undefined) delete process.env.XDG_STATE_HOME;
    else process.env.XDG_STATE_HOME = old.state;
    process.getuid = old.getuid;
    await rm(dir, { recursive: true });
  }
  const sent = "Bearer sk-file";
  assert.deepEqual(keys, [undefined, sent, sent, sent, undefined, undefined, undefined]);
});

test("numbers that no request can carry are refused with their field, before anything is sent", async () => {
  for (const name of ["requestTimeout", "reconnectTimeout", "silenceTimeout", "maxRetries", "idleTimeout"]) {
    for (const value of [NaN, Infinity, -1, "5", null]) {
      assert.throws(() => new Sandal({ [name]: value }), { name: "InvalidRequestError", code: "invalid_request", pointer: `/${name}` }, `${name} ${value}`);
    }
  }
  assert.throws(() => new Sandal({ silenceTimeout: 0 }), { pointer: "/silenceTimeout" });
  await withGateway([[200, SANDBOX]], {}, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    for (const value of [NaN, Infinity, -Infinity, 5n]) {
      for (const [call, pointer] of [
        [() => sb.runCode("1", { timeout: value }), "/timeout"],
        [() => sb.runCode("1", { limits: { outputBytes: value } }), "/limits/output_bytes"],
        [async () => { for await (const _ of sb.runCode("1", { stream: true, timeout: value })); }, "/timeout"],
        [() => sb.exec("true", { timeout: value }), "/timeout"],
        [() => sb.exec("true", { timeout: value, background: true }), "/timeout"],
        [() => sb.runs.attach("run-1", { after: value }), "/after"],
        [() => sb.expose(value), "/port"],
        [() => sandal.sandboxes.create({ timeout: value }), "/timeout"],
        [() => sandal.sandboxes.create({ metadata: { a: value } }), "/metadata/a"],
        [() => sandal.sandboxes.list({}, { requestTimeout: value }), "/requestTimeout"],
        [() => sb.fs.read("a", { offset: value }), "/offset"],
        [() => sb.fs.readStream("a", { length: value }), "/length"],
      ]) {
        let promise;
        assert.doesNotThrow(() => (promise = call()), pointer); // it rejects
        const error = await failure(promise);
        assert.deepEqual([error.name, error.code, error.pointer], ["InvalidRequestError", "invalid_request", pointer], `${value}`);
        assert.ok(error.message.includes(String(value)), error.message);
      }
    }
    for (const offset of [-1, 0.5]) assert.equal((await failure(sb.fs.read("a", { offset }))).pointer, "/offset");
    assert.equal(asked.length, 1);
  });
});

test("what is no data is a TypeError that says so", async () => {
  await withGateway([[200, SANDBOX]], {}, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    for (const [data, named] of [[5, "number"], [null, "Null"], [undefined, "undefined"], [{}, "Object"], [["a"], "Array"], [true, "boolean"]]) {
      const error = await failure(sb.fs.write("a", data));
      assert.equal(error.name, "TypeError");
      assert.ok(error.message.includes(`given ${named}: text, bytes`), error.message);
    }
    assert.equal(asked.length, 1);
  });
  const made = [201, null, { Location: "/v1/sandboxes/sbx-1/fs/uploads/u-1" }];
  await withGateway([[200, SANDBOX], made, [204, null]], {}, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    const error = await failure(sb.fs.write("a", (async function* () { yield 5; })()));
    assert.deepEqual([error.name, error.message.includes("gave number")], ["TypeError", true]);
    assert.equal(asked.at(-1).method, "DELETE");
  });
});

test("what is no id, and text where fields are wanted, is refused before anything is sent", async () => {
  assert.throws(() => new Sandal({ apiKey: 5 }), { name: "InvalidRequestError", pointer: "/apiKey" });
  assert.throws(() => new Sandal({ baseUrl: "nonsense" }), { name: "InvalidRequestError", pointer: "/baseUrl" });
  await withGateway([[200, SANDBOX]], { reconnectTimeout: 0 }, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    for (const none of [undefined, null, "", "..", {}]) {
      for (const call of [
        () => sandal.sandboxes.get(none), () => sandal.sandboxes.kill(none), () => sb.contexts.get(none), () => sb.contexts.reset(none),
        () => sb.contexts.interrupt(none), () => sb.runs.get(none), () => sb.runs.interrupt(none), () => sandal.context(none),
      ]) {
        let promise;
        assert.doesNotThrow(() => (promise = call()), `${call}`); // it rejects
        const error = await failure(promise);
        assert.deepEqual([error.name, error.code, error.pointer], ["InvalidRequestError", "invalid_request", "/id"], `${call} ${none}`);
      }
    }
    for (const call of [() => sandal.sandboxes.create("base"), () => sb.contexts.create("r"), () => sandal.sandboxes.create(null)]) {
      assert.match((await failure(call())).message, /an object is wanted/);
    }
    assert.equal(asked.length, 1);
    assert.equal((await failure(sb.runCode("1", { context: null }))).name, "ConnectionError"); // null is as good as absent: it is sent
    assert.equal("context" in JSON.parse(asked.at(-1).body), false);
  });
});

test("what no header or path can carry is refused, not tried again or replaced", async () => {
  for (const apiKey of ["ключ", "a b", "a\nb", "a\0"]) {
    assert.throws(() => new Sandal({ apiKey }), (error) => {
      assert.deepEqual([error.name, error.code, error.pointer], ["InvalidRequestError", "invalid_request", "/apiKey"]);
      assert.ok(error.message.includes("no header can carry") && !error.message.includes(apiKey), error.message);
      return true;
    });
  }
  let calls = 0;
  const fetch = async () => {
    calls++;
    return new Response(JSON.stringify(SANDBOX));
  };
  const bad = new Sandal({ apiKey: "k", headers: { "X-Mine": "п" }, fetch });
  assert.equal((await failure(bad.sandboxes.list())).pointer, "/X-Mine");
  assert.equal(calls, 0);
  const sandal = new Sandal({ apiKey: " k\n", fetch }); // as a file or a shell has it
  const sb = await sandal.sandboxes.get("sbx-1");
  const half = "a\ud800";
  for (const call of [
    () => sb.fs.read(half), () => sb.fs.readStream(half), () => sb.fs.write(half, "x"), () => sb.fs.write(half, new Blob(["x"]).stream()),
    () => sb.fs.list(half), () => sb.fs.stat(half), () => sb.fs.exists(half), () => sb.fs.mkdir(half), () => sb.fs.move(half, "b"),
    () => sb.fs.move("b", half), () => sb.fs.remove(half), () => sb.fs.watch(half).next(), () => sandal.sandboxes.get(half),
  ]) {
    const error = await failure(call());
    assert.equal(error.name, "InvalidRequestError", call);
    assert.match(error.message, /surrogate/);
  }
  assert.equal(calls, 1);
  await sb.fs.stat("a\ud83d\ude00"); // a whole pair
  assert.equal(calls, 2);
});

test("a POST is asked again under its first key", async () => {
  await withGateway(["cut", NO("draining", 503, { "Retry-After": "0" }), [201, SANDBOX]], {}, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.create({ template: "t", onTimeout: "kill", limits: { memoryMib: 64 }, env: { aB: "c" } });
    assert.equal(sb.id, "sbx-1");
    assert.equal(asked.length, 3);
    assert.equal(new Set(asked.map((one) => one.headers["idempotency-key"])).size, 1);
    assert.ok(asked[0].headers["idempotency-key"]);
    assert.deepEqual(JSON.parse(asked[2].body), { template: "t", on_timeout: "kill", limits: { memory_mib: 64 }, env: { aB: "c" } });
  });
});

test("what the gateway refuses is not asked again", async () => {
  for (const [code, status, name] of [
    ["invalid_request", 400, "InvalidRequestError"],
    ["unauthorized", 401, "AuthenticationError"],
    ["forbidden", 403, "PermissionDeniedError"],
    ["not_found", 404, "NotFoundError"],
    ["busy", 409, "ConflictError"],
    ["internal", 500, "ServerError"],
    ["not_supported", 501, "NotSupportedError"],
  ]) {
    await withGateway([NO(code, status)], {}, async (sandal, { asked }) => {
      const error = await failure(sandal.sandboxes.create({}));
      assert.deepEqual([error.name, error.code, error.status, error.hint, error.pointer], [name, code, status, "do this", "/a"]);
      assert.ok(error.message.includes("no"));
      assert.equal(asked.length, 1, code);
    });
  }
});

test("tries end, and the error says when to come again", async () => {
  await withGateway([NO("queue_full", 429, { "Retry-After": "0" })], { maxRetries: 2 }, async (sandal, { asked }) => {
    const error = await failure(sandal.sandboxes.list());
    assert.deepEqual([error.name, error.code, error.retryAfter], ["RateLimitError", "queue_full", 0]);
    assert.equal(asked.length, 3);
  });
});

test("a DELETE whose answer was lost has done its work", async () => {
  await withGateway(["cut", NO("sandbox_not_found", 404)], {}, (sandal) => sandal.sandboxes.kill("sbx-1"));
  await withGateway([NO("sandbox_not_found", 404)], {}, async (sandal) => {
    assert.equal((await failure(sandal.sandboxes.kill("sbx-1"))).code, "sandbox_not_found");
  });
});

test("time limits are kept to, and told", async () => {
  await withGateway(["silence"], { requestTimeout: 0.3 }, async (sandal, { asked }) => {
    const begin = performance.now();
    const error = await failure(sandal.sandboxes.list());
    const took = performance.now() - begin;
    assert.equal(error.name, "RequestTimeoutError");
    assert.ok(took >= 290 && took < 2000, `${took} ms`); // timers may be late where much else runs, but not early
    assert.equal(asked.length, 1);
    const own = performance.now();
    await failure(sandal.sandboxes.list({}, { requestTimeout: 0.1 }));
    assert.ok(performance.now() - own < 290 + 1000);
  });
});

test("who reads a file slowly is not timed, a gateway that sends slowly is", async () => {
  const server = createServer((request, response) => {
    if (request.url.endsWith("/sbx-1")) return response.end(JSON.stringify(SANDBOX));
    response.writeHead(200, { "Content-Length": "4" });
    response.write("ab");
    if (request.url.includes("slow")) return; // the rest never comes
    setTimeout(() => response.end("cd"), 50); // while the reader is away
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const sandal = new Sandal({ baseUrl: `http://127.0.0.1:${server.address().port}`, apiKey: "k", requestTimeout: 0.3 });
  const sb = await sandal.sandboxes.get("sbx-1");
  const reader = (await sb.fs.readStream("quick")).getReader();
  await reader.read();
  await new Promise((resolve) => setTimeout(resolve, 600)); // longer than the limit
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) rest += new TextDecoder().decode(part.value);
  assert.equal(rest.slice(-2), "cd");
  assert.equal((await failure(sb.fs.read("slow"))).name, "RequestTimeoutError");
  server.closeAllConnections?.();
  server.close();
});

test("a run waits for a gateway that goes and comes, longer than for other refusals", async () => {
  const no = NO("draining", 503, { "Retry-After": "0" });
  const result = { type: "result", run: "run-1", seq: 0, status: "ok", text: "2" };
  await withGateway([[200, SANDBOX], no, no, no, no, no, no, `${JSON.stringify(result)}\n`], { maxRetries: 1 }, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    assert.equal((await sb.runCode("1+1")).text, "2");
    assert.equal(new Set(asked.slice(1).map((one) => JSON.parse(one.body).key)).size, 1);
  });
  await withGateway([[200, SANDBOX], NO("queue_full", 429, { "Retry-After": "0" })], { maxRetries: 1 }, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    assert.equal((await failure(sb.runCode("1+1"))).code, "queue_full");
    assert.equal(asked.length, 3);
  });
});

test("a run that finds a socket full goes by HTTP", async () => {
  class Full {
    readyState = 0;
    constructor() {
      queueMicrotask(() => {
        this.readyState = 1;
        this.onopen({});
      });
    }
    send(text) {
      const { id } = JSON.parse(text);
      const error = { code: "quota_exceeded", message: "this socket follows as many runs as it may" };
      queueMicrotask(() => this.onmessage({ data: JSON.stringify({ id, type: "failure", error }) }));
    }
    close() {
      this.readyState = 3;
    }
  }
  const result = { type: "result", run: "run-1", seq: 0, status: "ok", text: "2" };
  const options = { transport: "auto", WebSocket: Full };
  await withGateway([[200, SANDBOX], `${JSON.stringify(result)}\n`], options, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    assert.equal((await sb.runCode("1+1")).text, "2");
    assert.equal(asked.length, 2);
    sandal.close();
  });
});

test("a limit holds for the tries together", async () => {
  await withGateway([NO("draining", 503, { "Retry-After": "20" })], { requestTimeout: 0.3 }, async (sandal) => {
    const begin = performance.now();
    assert.equal((await failure(sandal.sandboxes.list())).name, "RequestTimeoutError");
    assert.ok(performance.now() - begin < 3000);
  });
});

test("a signal ends a call with its reason", async () => {
  await withGateway(["silence"], {}, async (sandal) => {
    const abort = new AbortController();
    const reason = new Error("mine");
    setTimeout(() => abort.abort(reason), 50); // into the wait
    assert.equal(await failure(sandal.sandboxes.list({}, { signal: abort.signal })), reason);
  });
});

test("an answer that is no JSON of ours has its status", async () => {
  await withGateway([[502, "<html>"]], {}, async (sandal) => {
    const error = await failure(sandal.sandboxes.list());
    assert.deepEqual([error.name, error.status], ["ServerError", 502]);
  });
});

test("lists come in pages, one ahead", async () => {
  const page = (id, next) => [200, { items: [{ ...SANDBOX, id }], next }];
  await withGateway([page("sbx-1", "x"), page("sbx-2", "y"), page("sbx-3", null)], {}, async (sandal, { asked }) => {
    assert.deepEqual((await sandal.sandboxes.list({ metadata: { kEy: "v" }, limit: 1 })).map((one) => one.id), ["sbx-1", "sbx-2", "sbx-3"]);
    assert.deepEqual(asked.map((one) => one.url), [
      "/v1/sandboxes?metadata.kEy=v&limit=1",
      "/v1/sandboxes?metadata.kEy=v&limit=1&after=x",
      "/v1/sandboxes?metadata.kEy=v&limit=1&after=y",
    ]);
  });
  await withGateway([page("sbx-1", "x"), page("sbx-2", null)], {}, async (sandal, { asked }) => {
    for await (const one of sandal.sandboxes.list()) {
      assert.equal(one.id, "sbx-1");
      break;
    }
    assert.equal(asked.length, 1);
  });
});

test("forks and snapshots have their shapes", async () => {
  const forks = { items: [{ sandbox: { ...SANDBOX, id: "sbx-2", default_context: "c" } }, { error: { code: "quota_exceeded", message: "no" } }], next: null };
  const gone = [204, null];
  await withGateway([[200, SANDBOX], [201, { items: forks.items.slice(0, 1) }], [201, forks], gone, [201, { id: "snap-1", created_at: "t" }], [200, SANDBOX]], {}, async (sandal, { asked }) => {
    const sb = await sandal.sandboxes.get("sbx-1");
    const [made] = await sb.fork({ count: 1, wait: 1 });
    assert.equal(made.info.defaultContext, "c");
    const failed = await failure(sb.fork({ count: 2 }));
    assert.deepEqual([failed.name, failed.code], ["RateLimitError", "quota_exceeded"]);
    const snapshot = await sb.snapshot();
    assert.equal(snapshot.createdAt, "t");
    await sb.restore(snapshot);
    assert.deepEqual(asked.slice(1).map((one) => [one.url, one.body && JSON.parse(one.body)]), [
      ["/v1/sandboxes/sbx-1/fork", { count: 1, wait: 1 }],
      ["/v1/sandboxes/sbx-1/fork", { count: 2 }],
      ["/v1/sandboxes/sbx-2", ""], // the copy that was made
      ["/v1/sandboxes/sbx-1/snapshots", {}],
      ["/v1/sandboxes/sbx-1/restore", { snapshot: "snap-1" }],
    ]);
  });
});

test("a long line that comes in small pieces takes as long as its bytes", async () => {
  const line = (size) => new TextEncoder().encode(`${JSON.stringify({ type: "result", run: "run-1", seq: 0, status: "ok", stdout: "é".repeat(size / 2) })}\n`);
  const pieces = (bytes) => {
    let from = 0;
    return new ReadableStream({
      pull(controller) {
        if (from >= bytes.length) return controller.close();
        controller.enqueue(bytes.subarray(from, from + 4095)); // odd: characters are cut, too
        from += 4095;
      },
    });
  };
  let body;
  const fetch = async (url) => new Response(url.endsWith("/sbx-1") ? JSON.stringify(SANDBOX) : pieces(body));
  const sandal = new Sandal({ apiKey: "k", transport: "http", fetch });
  const sb = await sandal.sandboxes.get("sbx-1");
  const took = async (size) => {
    body = line(size);
    const begin = performance.now();
    assert.equal((await sb.runCode("1")).stdout.length, size / 2);
    return performance.now() - begin;
  };
  await took(1 << 20); // warm
  const [small, large] = [await took(2 << 20), await took(32 << 20)];
  assert.ok(large < 80 * small + 500, `2 MiB ${small} ms, 32 MiB ${large} ms`); // 16 times; 256 times where each piece costs what came before
});
