// A model's loop with one tool, over a client of the model's own API; the test gives it a model that asks for code twice.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { Sandal } from "@sandal/sdk";

const anthropic = new Anthropic();
const sandal = new Sandal({ apiKey: process.env["SANDAL_API_KEY"]! });
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });
const ctx = await sb.contexts.create({ language: "python" });
await sb.fs.write("sales.csv", "region,revenue\nnorth,3\nsouth,5\n");

const tools = [
  {
    name: "run_code",
    description: "Runs Python in an interpreter that keeps its variables.",
    input_schema: { type: "object", properties: { code: { type: "string" } }, required: ["code"] },
  },
];
const messages: any[] = [{ role: "user", content: "Which region earned most?" }];
const answers: string[] = [];
for (;;) {
  const response: any = await anthropic.messages.create({ model: "claude-sonnet-4-5", max_tokens: 1024, tools, messages } as any);
  const toolUse = response.content.find((b: any) => b.type === "tool_use");
  if (!toolUse) break;
  const result = await sb.runCode(toolUse.input.code, { context: ctx.id });
  const content = result.error ? `Error: ${result.error.name}: ${result.error.message}` : result.text;
  answers.push(content);
  messages.push({ role: "assistant", content: response.content });
  messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: toolUse.id, content }] });
}
assert.deepEqual(answers, ["Error: NameError: name 'sales' is not defined", "'south'"]);
await sb.kill();
console.log("ok");
