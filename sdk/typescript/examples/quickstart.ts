// Variables stay from one call to the next; what an interpreter would render comes as typed results.
import { Sandal } from "@sandal/sdk";

const sandal = new Sandal(); // SANDAL_URL and SANDAL_API_KEY, or the gateway of this machine
const sb = await sandal.sandboxes.create({ template: "code-interpreter-python" });

await sb.runCode("import pandas as pd\ndf = pd.DataFrame({'city': ['Ulm', 'Bern'], 'people': [128928, 134794]})");
const result = (await sb.runCode("df[df.people > 130_000]")).raise();
console.log(result.text);
console.log(result.results[0]?.rows());

await sb.kill();
