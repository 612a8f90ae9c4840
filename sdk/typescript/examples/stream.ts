// Output while the code runs, an answer to input(), and an end by a signal.
import { Sandal } from "@sandal/sdk";

const sandal = new Sandal();
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });

const run = sb.runCode("import time\nname = input('Who? ')\nfor i in range(3):\n    print(i, name)\n    time.sleep(0.1)", { stream: true });
for await (const event of run) {
  if (event.type === "input") await run.input("you");
  if (event.type === "stdout") process.stdout.write(event.text);
  if (event.type === "result") console.log(event.status, event.usage?.wallMs !== undefined);
}

try {
  await sb.runCode("while True: pass", { signal: AbortSignal.timeout(500) });
} catch (error) {
  console.log((error as Error).name); // TimeoutError; the run was interrupted
}
console.log((await sb.runCode("name")).text); // the variables are still there

await sb.kill();
