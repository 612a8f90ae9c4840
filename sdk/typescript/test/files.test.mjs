import assert from "node:assert/strict";
import { test } from "node:test";
import { all, failure, sandbox, until } from "./help.mjs";

const sb = await sandbox();
const MIB = 1 << 20;

function pattern(size) {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 7 + (i >> 8)) & 0xff;
  return bytes;
}

test("every kind of data is written and read back", async () => {
  const text = "grüß dich\n";
  const bytes = new TextEncoder().encode(text);
  const kinds = {
    text,
    bytes,
    buffer: Buffer.from(text),
    arraybuffer: bytes.buffer.slice(0),
    view: new DataView(bytes.buffer.slice(0)),
    blob: new Blob([text]),
    stream: new Blob([text]).stream(),
    generator: (async function* () {
      yield "grüß ";
      yield new TextEncoder().encode("dich\n");
    })(),
  };
  for (const [name, data] of Object.entries(kinds)) {
    await sb.fs.write(`kinds/${name}`, data);
    assert.equal(await sb.fs.readText(`kinds/${name}`), text, name);
  }
  await sb.fs.write("kinds/empty", "");
  assert.equal((await sb.fs.read("kinds/empty")).length, 0);
  await sb.fs.write("kinds/empty-stream", new Blob([]).stream());
  assert.equal((await sb.fs.stat("kinds/empty-stream")).size, 0);
});

test("a node stream is written", async () => {
  const { Readable } = await import("node:stream");
  await sb.fs.write("node.txt", Readable.from([Buffer.from("a"), Buffer.from("b")]));
  assert.equal(await sb.fs.readText("node.txt"), "ab");
});

test("large data goes in parts, with progress", async () => {
  const data = pattern(9 * MIB + 5);
  const up = [];
  await sb.fs.write("large", data, { onProgress: (progress) => up.push(progress) });
  assert.deepEqual(up.at(-1), { done: data.length, total: data.length });
  assert.ok(up.length > 1);
  const down = [];
  const back = await sb.fs.read("large", { onProgress: (progress) => down.push(progress) });
  assert.equal(Buffer.compare(back, data), 0);
  assert.deepEqual(down.at(-1), { done: data.length, total: data.length });
  const streamed = [];
  await sb.fs.write("streamed", new Blob([data]).stream(), { onProgress: (progress) => streamed.push(progress) });
  assert.deepEqual(streamed.at(-1), { done: data.length, total: null });
  assert.equal(Buffer.compare(await sb.fs.read("streamed"), data), 0);
});

test("a range of a file", async () => {
  await sb.fs.write("range", "0123456789");
  assert.equal(await sb.fs.readText("range", { offset: 2, length: 3 }), "234");
  assert.equal(await sb.fs.readText("range", { offset: 8 }), "89");
  assert.equal(await sb.fs.readText("range", { length: 0 }), "");
  assert.equal((await failure(sb.fs.read("range", { offset: 100 }))).code, "range_not_satisfiable");
});

test("a stream of a file may be left", async () => {
  const stream = await sb.fs.readStream("large");
  const reader = stream.getReader();
  assert.ok((await reader.read()).value.length > 0);
  await reader.cancel();
});

test("an upload that is broken off leaves the old file", async () => {
  await sb.fs.write("kept", "old");
  const error = await failure(sb.fs.write("kept", (async function* () {
    yield "new";
    throw new RangeError("mine");
  })()));
  assert.equal(error.message, "mine");
  assert.equal(await sb.fs.readText("kept"), "old");
  assert.deepEqual((await sb.fs.list(".")).filter((entry) => entry.name.startsWith(".sandal-")), []);
});

test("conditions of a write", async () => {
  await sb.fs.write("once", "1", { ifNoneMatch: "*" });
  const error = await failure(sb.fs.write("once", "2", { ifNoneMatch: "*" }));
  assert.equal(error.code, "precondition_failed");
  assert.equal(error.name, "ConflictError");
  assert.equal(await sb.fs.readText("once"), "1");
});

test("directories, moves, modes, links", async () => {
  await sb.fs.mkdir("tree/a/b");
  await sb.fs.write("tree/a/run.sh", "#!/bin/sh\necho ran\n", { mode: "755" });
  assert.equal((await sb.fs.stat("tree/a/run.sh")).mode, "0755");
  assert.equal((await sb.exec(["tree/a/run.sh"])).stdout, "ran\n");
  await sb.exec("ln -s run.sh tree/a/link");
  const link = await sb.fs.stat("tree/a/link");
  assert.equal(link.type, "symlink");
  assert.equal(link.target, "run.sh");
  assert.equal((await sb.fs.stat("tree/a/link", { follow: true })).type, "file");
  assert.deepEqual((await sb.fs.list("tree", { depth: 2 })).map((entry) => entry.path.split("/tree/")[1]), ["a", "a/b", "a/link", "a/run.sh"]);
  assert.equal((await all(sb.fs.list("tree", { depth: 2, limit: 1 }))).length, 4);
  await sb.fs.move("tree/a", "tree/c");
  assert.equal(await sb.fs.exists("tree/a"), false);
  assert.equal(await sb.fs.exists("tree/c/run.sh"), true);
  assert.equal((await failure(sb.fs.remove("tree"))).name, "ConflictError");
  await sb.fs.remove("tree", { recursive: true });
  assert.equal((await failure(sb.fs.stat("tree"))).code, "not_found");
});

test("names that are not UTF-8 are reached by their entry", async () => {
  await sb.exec("mkdir odd; printf x >\"odd/$(printf '\\377')\"");
  const [entry] = await sb.fs.list("odd");
  assert.equal(await sb.fs.readText(entry), "x");
  await sb.fs.write(entry, "y");
  await sb.fs.remove(entry);
  assert.deepEqual(await sb.fs.list("odd"), []);
});

test("a watch tells what changes, until it is left", async () => {
  await sb.fs.mkdir("seen");
  const seen = [];
  const watch = sb.fs.watch("seen");
  await watch.ready();
  await watch.ready(); // is the same
  const watching = (async () => {
    for await (const event of watch) {
      seen.push(event);
      if (event.type === "deleted") break;
    }
  })();
  await sb.fs.write("seen/a", "1");
  await sb.fs.remove("seen/a");
  await watching;
  assert.deepEqual(seen.map((event) => event.type).filter((type) => type !== "modified"), ["created", "deleted"]);
  assert.ok(seen[0].path.endsWith("seen/a"));
  assert.equal((await watch.next()).done, true);
  const none = sb.fs.watch("none-such");
  for (const call of [none.ready(), none.next()]) assert.equal((await failure(call)).code, "not_found");
  const abort = new AbortController();
  const reason = new Error("enough");
  setTimeout(() => abort.abort(reason), 100); // into the silence
  assert.equal(await failure(all(sb.fs.watch("seen", { signal: abort.signal }))), reason);
});
