// Compiled, strictly, by the newest compiler and an older one; never run. What must not compile says so.
import {
  Sandal,
  SandalError,
  ExecutionError,
  type Context,
  type Execution,
  type Run,
  type RunEvent,
  type Sandbox,
  type Result,
  type CommandResult,
  type Process,
  type Operations,
} from "@sandal/sdk";

export async function use(code: string): Promise<void> {
  const sandal = new Sandal({ apiKey: "k", baseUrl: "http://127.0.0.1:8717", requestTimeout: 5 });
  await using sb = await sandal.sandboxes.create({ template: "code-interpreter-python", limits: { memoryMib: 512 }, onTimeout: "kill" });
  const same: Sandbox = sb;

  const r: Execution = await same.runCode("1+1");
  const text: string = r.text;
  const results: Result[] = r.results;
  if (r.error) console.log(r.error.name.length, r.error.message.length, r.error.traceback.join("\n"), text, results);
  if (r.status === "oom") console.log(r.usage?.peakMemory);
  const chained: string = (await sb.runCode("2")).raise().text;

  const run: Run = sb.runCode(code, { stream: true, signal: AbortSignal.timeout(1000) });
  for await (const chunk of run) {
    if (chunk.type === "stdout") console.log(chunk.text.length);
    if (chunk.type === "display") console.log(chunk.result.toBlob().size);
    if (chunk.type === "result") console.log(chunk.results.length, chunk.executionCount);
    const event: RunEvent = chunk;
    // @ts-expect-error: only text has a text
    console.log(event.text);
  }
  const ended: Execution = await run;

  // @ts-expect-error: without `stream` there is nothing to iterate
  for await (const chunk of sb.runCode(code)) console.log(chunk);
  // @ts-expect-error: no such option
  await sb.runCode(code, { time_out: 3 });
  // @ts-expect-error: no such template field
  await sandal.sandboxes.create({ templates: "x" });
  // @ts-expect-error: code is text
  await sb.runCode(1);

  const context: Context = await sb.contexts.create({ language: "r" });
  await sb.runCode(code, { context });
  await sb.runCode(code, { context: context.id, onInput: ({ prompt }) => prompt.trim(), onStdout: (out) => void out.length });
  const contexts: Context[] = await sb.contexts.list();
  for await (const one of sb.contexts.list()) console.log(one.executionCount, contexts, chained, ended);

  const done: CommandResult = await sb.exec(["ls"]);
  const process: Process = await sb.exec("sleep 1", { background: true, pty: { cols: 80, rows: 24 } });
  for await (const event of sb.exec("ls", { stream: true })) if (event.type === "result") console.log(event.exitCode, done.signal, process.pid);

  const bytes: Uint8Array = await sb.fs.read("a");
  await sb.fs.write("b", bytes);
  await sb.fs.write("b", new Blob([]).stream(), { onProgress: ({ done: sent, total }) => console.log(sent, total ?? 0) });
  // @ts-expect-error: a number is no data
  await sb.fs.write("b", 1);
  const url: string = await sb.expose(8000);
  const [copy] = await sb.fork({ count: 1 });
  console.log(copy?.id, url);

  try {
    r.raise();
  } catch (error) {
    if (error instanceof ExecutionError) console.log(error.traceback, error.execution.run);
    else if (error instanceof SandalError) console.log(error.code, error.hint, error.pointer, error.status);
  }
  const fields: Operations["run_code"]["request"] = { sandbox: sb.id, code };
  console.log(fields);
}
