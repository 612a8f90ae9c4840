// A figure as a file, a CSV into the sandbox with progress.
import { Sandal } from "@sandal/sdk";

const sandal = new Sandal();
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });

await sb.fs.write("points.csv", "x,y\n1,4\n2,1\n3,2\n", { onProgress: ({ done, total }) => console.log(`${done} of ${total}`) });
const result = (await sb.runCode("import pandas as pd\npd.read_csv('points.csv').plot(x='x', y='y')")).raise();
for (const picture of result.results.filter((one) => one.type === "image/png")) {
  await picture.save("points.png");
  console.log("points.png");
}

await sb.kill();
