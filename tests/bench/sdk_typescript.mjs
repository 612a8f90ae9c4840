// What the TypeScript SDK adds to a run over a raw WebSocket client: both in turns, medians in ms, as JSON.
// usage: SANDAL_URL=… SANDAL_API_KEY=… node sdk_typescript.mjs [--rounds N]     (SANDAL_TEST_ENTRY: the SDK's index.js)

const { Sandal } = await import(process.env.SANDAL_TEST_ENTRY ?? "../../sdk/typescript/dist/esm/index.js");
const at = process.argv.indexOf("--rounds");
const rounds = at > 0 ? Number(process.argv[at + 1]) : 500;
const url = process.env.SANDAL_URL.replace(/^http/, "ws");

const sandal = new Sandal();
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });
const socket = new WebSocket(`${url}/v1/ws`, ["sandal.v1", `bearer.${process.env.SANDAL_API_KEY}`]);
await new Promise((resolve) => (socket.onopen = resolve));

let next = 0;
function raw(code) {
  return new Promise((resolve) => {
    const id = `r${next++}`;
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.id === id && frame.type === "result") resolve(frame);
    };
    socket.send(JSON.stringify({ id, op: "run_code", sandbox: sb.id, code, stream: false }));
  });
}

async function timed(act) {
  const begin = performance.now();
  const answer = await act();
  if (answer.text !== "2") throw new Error(`the answer is ${answer.text}`);
  return performance.now() - begin;
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const round = (value) => Math.round(value * 1000) / 1000;

const times = { raw: [], sdk: [] };
for (let i = -20; i < rounds; i++) {
  const pair = [await timed(() => raw("1+1")), await timed(() => sb.runCode("1+1"))];
  if (i < 0) continue; // until everything is compiled
  times.raw.push(pair[0]);
  times.sdk.push(pair[1]);
}
socket.close();
await sb.kill();
const [rawP50, sdkP50] = [median(times.raw), median(times.sdk)];
console.log(JSON.stringify({ rounds, raw_p50_ms: round(rawP50), sdk_p50_ms: round(sdkP50), added_p50_ms: round(sdkP50 - rawP50) }));
