// A server in the sandbox, reached from outside.
import { Sandal } from "@sandal/sdk";

const sandal = new Sandal();
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });

await sb.fs.write("site/index.html", "<h1>hello</h1>\n");
const server = await sb.exec("exec python3 -m http.server 8000 --directory site", { background: true });
const url = await sb.expose(8000);
console.log(await (await fetch(url)).text());
await server.signal("SIGTERM");
console.log((await server.wait()).signal);

await sb.kill();
