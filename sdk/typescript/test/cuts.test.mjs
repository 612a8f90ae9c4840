// Connections that are cut, at every byte of a small stream: nothing is lost, nothing comes twice, and nothing is done twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, client, failure, sandbox } from "./help.mjs";
import { proxy } from "./proxy.mjs";

const sb = await sandbox();
const AT_ONCE = 6;

/** A client whose connections go through a proxy. All ends with `act`, also where that fails, so that nothing holds the program. */
async function through(options, act) {
  const between = await proxy();
  let isOver = false;
  // What a failed test has left under way is refused, and not tried again.
  const ask = options.fetch ?? fetch;
  const guarded = async (...args) => (isOver ? new Response("{}", { status: 401 }) : ask(...args));
  const sandal = client({ baseUrl: between.url, ...options, fetch: guarded });
  try {
    return await act(await sandal.sandboxes.get(sb.id), between);
  } finally {
    isOver = true;
    sandal.close();
    between.close();
  }
}

/** One run whose connection is cut at that byte; whether there was a cut at all. */
function cutAt(way, bytes, options) {
  return through(options, async (mine, between) => {
    between.state.cut[way] = bytes; // what comes next is the run's
    const token = `${way}-${bytes}`;
    const events = await all(mine.runCode(`n += 1\nprint(${JSON.stringify(token)})`, { stream: true }));
    assert.deepEqual(events.map((event) => event.seq), events.map((_, i) => i), token);
    assert.equal(events.at(-1).type, "result", token);
    assert.equal(events.at(-1).stdout, `${token}\n`);
    assert.equal(events.filter((event) => event.type === "stdout").map((event) => event.text).join(""), `${token}\n`);
    return between.state.cuts > 0;
  });
}

async function everyByte(way, step, options = {}) {
  await sb.runCode("n = 0");
  let next = 0;
  let runs = 0;
  let isThrough = false;
  const cutMore = async () => {
    while (!isThrough) {
      const bytes = next;
      next += step;
      runs++;
      try {
        if (!(await cutAt(way, bytes, options))) isThrough = true;
      } catch (error) {
        isThrough = true; // ends the others
        throw error;
      }
    }
  };
  for (const { reason } of await Promise.allSettled(Array.from({ length: AT_ONCE }, cutMore))) if (reason) throw reason;
  assert.equal((await sb.runCode("n")).text, String(runs));
  return next;
}

test("a WebSocket is cut at every byte that comes", { skip: typeof WebSocket === "undefined" && "this platform has no WebSocket" }, async (t) => {
  t.diagnostic(`${await everyByte("down", 1, { transport: "websocket" })} bytes`);
});

test("a WebSocket is cut at bytes that go", { skip: typeof WebSocket === "undefined" && "this platform has no WebSocket" }, async (t) => {
  t.diagnostic(`${await everyByte("up", 7, { transport: "websocket" })} bytes`);
});

test("an HTTP stream is cut at every byte that comes", async (t) => {
  t.diagnostic(`${await everyByte("down", 1, { transport: "http" })} bytes`);
});

test("an HTTP stream is cut at bytes that go", async (t) => {
  t.diagnostic(`${await everyByte("up", 7, { transport: "http" })} bytes`);
});

test("a download goes on where it was cut", async () => {
  const data = new Uint8Array(3 << 20).map((_, i) => (i * 31) >> 3);
  await sb.fs.write("large", data);
  // The ETag is strong once the file is a second old.
  await new Promise((resolve) => setTimeout(resolve, 1100));
  await through({}, async (mine, between) => {
    between.state.cut.down = 1 << 20;
    assert.equal(Buffer.compare(await mine.fs.read("large"), data), 0);
    assert.equal(between.state.cuts, 1);
    assert.ok(between.state.down < data.length * 1.5, `${between.state.down} bytes came`);
  });
});

test("a download of a file that was just written goes on, too", async () => {
  const data = new Uint8Array(3 << 20).map((_, i) => (i * 37) >> 3);
  await through({}, async (mine, between) => {
    for (const read of [(name) => mine.fs.read(name), async (name) => Buffer.concat(await all(await mine.fs.readStream(name)))]) {
      await sb.fs.write("young", data);
      between.state.down = 0;
      between.state.cut.down = 1 << 20;
      assert.equal(Buffer.compare(await read("young"), data), 0);
      assert.ok(between.state.down < data.length * 1.5, `${between.state.down} bytes came`);
    }
    assert.equal(between.state.cuts, 2);
  });
});

test("a file that changes while its connection is away is read anew, or its stream fails", async () => {
  const [old, now] = [1, 2].map((fill) => new Uint8Array(3 << 20).fill(fill));
  let changed; // what is asked after the cut is asked after the change
  await through({ fetch: async (...args) => (await changed, fetch(...args)) }, async (mine, between) => {
    const cutAndChanged = async (read) => {
      changed = undefined;
      await sb.fs.write("changing", old);
      between.state.cut.down = 1 << 20;
      const onProgress = ({ done }) => {
        if (done > 0) changed ??= sb.fs.write("changing", now);
      };
      return read({ onProgress });
    };
    const part = { offset: 5, length: (3 << 20) - 9 };
    for (const [range, size] of [[{}, now.length], [part, part.length]]) {
      const bytes = await cutAndChanged((options) => mine.fs.read("changing", { ...options, ...range }));
      assert.equal(Buffer.compare(bytes, now.subarray(0, size)), 0);
    }
    const error = await failure(cutAndChanged(async (options) => all(await mine.fs.readStream("changing", options))));
    assert.equal(error.name, "ConnectionError");
    assert.match(error.message, /changed since/);
  });
});

test("an upload goes on where it was cut", async () => {
  const data = new Uint8Array(9 << 20).map((_, i) => (i * 13) >> 2);
  await through({}, async (mine, between) => {
    for (const [name, content] of [["known", data], ["stream", new Blob([data]).stream()]]) {
      between.state.cut.up = 6 << 20;
      await mine.fs.write(name, content, { onProgress: () => {} });
      assert.equal(Buffer.compare(await sb.fs.read(name), data), 0, name);
    }
    await mine.fs.write("whole", data.subarray(0, 1 << 20));
    between.state.cut.up = 1 << 19;
    await mine.fs.write("whole", data.subarray(0, 1 << 20));
    assert.equal(between.state.cuts, 3);
    assert.equal((await sb.fs.stat("whole")).size, 1 << 20);
  });
});

test("an upload goes on however often it is cut", async () => {
  const data = new Uint8Array(6 << 20).map((_, i) => (i * 17) >> 2);
  // A slow gateway gets nowhere by some of its tries.
  await through({ maxRetries: 8 }, async (mine, between) => {
    for (const [name, content] of [["text", "x".repeat(data.length)], ["parts", new Blob([data]).stream()]]) {
      between.state.cut = { upEach: 1 << 20 }; // more cuts than a call has tries
      const { cuts } = between.state;
      await mine.fs.write(name, content);
      assert.ok(between.state.cuts - cuts > 3, `${name}: ${between.state.cuts - cuts} cuts`);
      assert.equal(Buffer.compare(await sb.fs.read(name), typeof content === "string" ? Buffer.from(content) : data), 0, name);
    }
  });
});

test("an upload whose answers are lost is there when its call resolves", async () => {
  const data = new Uint8Array((4 << 20) + 1);
  await through({}, async (mine, between) => {
    for (const stream of [false, true]) {
      for (let answers = 0, isThrough = false; !isThrough; answers++) {
        between.state.cut = { answers }; // the next one is lost
        const { cuts } = between.state;
        await mine.fs.write(`answered-${stream}-${answers}`, stream ? new Blob([data]).stream() : data);
        assert.equal((await sb.fs.stat(`answered-${stream}-${answers}`)).size, data.length);
        isThrough = between.state.cuts === cuts;
        assert.ok(answers < 50);
      }
    }
  });
});

test("a watch whose connection is cut tells of the gap", async () => {
  await sb.fs.mkdir("watched");
  await through({}, async (mine, between) => {
    const seen = [];
    const watch = mine.fs.watch("watched");
    await watch.ready();
    between.state.cut.down = 1;
    await sb.fs.write("watched/a", "1"); // is cut off
    for await (const event of watch) {
      seen.push(event.type);
      if (event.type === "overflow") await sb.fs.write("watched/b", "1");
      if (event.path?.endsWith("b")) break;
    }
    assert.equal(seen[0], "overflow");
  });
});

test("a gateway that falls silent is found out", { skip: typeof WebSocket === "undefined" && "this platform has no WebSocket" }, async () => {
  await through({ silenceTimeout: 0.8, reconnectTimeout: 10 }, async (mine, between) => {
    const run = mine.runCode("import time\nprint('up', flush=True)\ntime.sleep(1)\n'end'", { stream: true });
    for await (const event of run) {
      if (event.type !== "stdout") continue;
      between.state.cut.hole = true;
      setTimeout(() => (between.state.cut.hole = false), 1500); // longer than the silence that is borne
    }
    assert.equal((await run).text, "'end'");
    assert.ok(between.state.connections > 2);
  });
});

test("a gateway that does not come back is a ConnectionError", async () => {
  await through({ reconnectTimeout: 0.5 }, async (mine, between) => {
    const run = mine.runCode("import time\nprint('up', flush=True)\ntime.sleep(20)", { stream: true, onDisconnect: "interrupt" });
    const seen = [];
    const error = await failure((async () => {
      for await (const event of run) {
        seen.push(event.type);
        if (event.type === "stdout") between.close();
      }
    })());
    assert.equal(error.name, "ConnectionError");
    assert.equal(error.status, 0);
    assert.ok(seen.includes("stdout"));
    assert.equal((await failure(run)), error);
  });
});
