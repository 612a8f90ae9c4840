import assert from "node:assert/strict";
import { test } from "node:test";
import { client, failure, sandbox } from "./help.mjs";

const sandal = client();
const sb = await sandbox();
const CODE = { code: "print('out')\n6 * 7" };

/** A call of each vendor's, and what of the answer the model reads. */
const CALLS = {
  anthropic: [
    (args) => ({ type: "tool_use", id: "toolu_1", name: "run_code", input: args }),
    (block) => [block.type, block.tool_use_id, JSON.stringify(block.content)],
    ["tool_result", "toolu_1"],
  ],
  openai: [
    (args) => ({ type: "function_call", id: "fc_1", call_id: "call_1", name: "run_code", arguments: JSON.stringify(args) }),
    (block) => [block.type, block.call_id, JSON.stringify(block.output)],
    ["function_call_output", "call_1"],
  ],
  "openai-chat": [
    (args) => ({ id: "call_2", type: "function", function: { name: "run_code", arguments: JSON.stringify(args) } }),
    (block) => [block.role, block.tool_call_id, JSON.stringify(block.content)],
    ["tool", "call_2"],
  ],
  gemini: [
    (args) => ({ functionCall: { name: "run_code", args } }),
    (block) => ["part", block.functionResponse.name, JSON.stringify(block.functionResponse.response)],
    ["part", "run_code"],
  ],
};

test("definitions are lists for a request's tools", async () => {
  for (const format of [...Object.keys(CALLS), "mcp"]) {
    const list = await sandal.tools.definitions(format);
    assert.ok(Array.isArray(list) && list.length > 0, format);
    assert.ok(JSON.stringify(list).includes("run_code"), format);
  }
});

for (const [format, [call, read, answer]] of Object.entries(CALLS)) {
  test(`a call of ${format} is known by its shape and answered in its own`, async () => {
    const block = await sandal.tools.runToolCall(call(CODE), { sandbox: sb });
    const [kind, id, text] = read(block);
    assert.deepEqual([kind, id], answer);
    assert.match(text, /out/);
    assert.match(text, /42/);
    const failed = read(await sandal.tools.runToolCall(call({ code: "not_there" }), { sandbox: sb.id }));
    assert.match(failed[2], /NameError/);
  });
}

test("calls of one client are one conversation", async () => {
  assert.equal((await sandal.tools.call("run_code", { code: "x = 41" })).isError ?? false, false);
  const { content } = await sandal.tools.call("run_code", { code: "x + 1" });
  assert.ok(content.some((part) => part.type === "text" && part.text.includes("42")));
  const other = await client().tools.call("run_code", { code: "x" }, { session: `other-${Date.now()}` });
  assert.equal(other.isError, true);
  for (const made of await sandal.sandboxes.list()) if ("tools.session" in made.metadata) await made.kill();
});

test("a picture is one, unless it is not wanted", async () => {
  const plot = { code: "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()" };
  const { content } = await sandal.tools.call("run_code", plot, { sandbox: sb });
  assert.equal(content.find((part) => part.type === "image").mimeType, "image/png");
  const without = await sandal.tools.call("run_code", plot, { sandbox: sb, images: false });
  assert.ok(!without.content.some((part) => part.type === "image"));
  const short = await sandal.tools.call("run_code", { code: "print('word ' * 10_000)" }, { sandbox: sb, maxTokens: 100 });
  assert.ok(JSON.stringify(short).length < 5000);
});

test("a block that is no call is told before anything is asked", async () => {
  assert.equal((await failure(sandal.tools.runToolCall({ what: 1 }))).code, "invalid_request");
});
