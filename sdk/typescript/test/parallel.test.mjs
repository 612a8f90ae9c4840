import assert from "node:assert/strict";
import { test } from "node:test";
import { sandbox } from "./help.mjs";

const sb = await sandbox();
const RUNS = 1000;

test("a thousand runs at once, each with its own answer", async (t) => {
  await sb.runCode("done = []");
  const begin = performance.now();
  const answers = await Promise.all(Array.from({ length: RUNS }, (_, i) => sb.runCode(`done.append(${i})\n${i} * 2`)));
  t.diagnostic(`${Math.round(performance.now() - begin)} ms`);
  assert.deepEqual(answers.map((r) => r.text), answers.map((_, i) => String(i * 2)));
  assert.equal(new Set(answers.map((r) => r.run)).size, RUNS);
  assert.equal((await sb.runCode("len(done), len(set(done))")).text, `(${RUNS}, ${RUNS})`);
});

test("a thousand streams at once", async () => {
  const texts = await Promise.all(
    Array.from({ length: RUNS }, async (_, i) => {
      let text = "";
      for await (const event of sb.runCode(`print(${i})`, { stream: true })) if (event.type === "stdout") text += event.text;
      return text;
    }),
  );
  assert.deepEqual(texts, texts.map((_, i) => `${i}\n`));
});
