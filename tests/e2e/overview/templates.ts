// The templates, each by its own language; the test names those that are built here.
import assert from "node:assert/strict";
import { Sandal } from "@sandal/sdk";

const sandal = new Sandal({ apiKey: process.env["SANDAL_API_KEY"]! });
const codes: Record<string, [string, string]> = {
  "code-interpreter-python": ["import pandas, numpy, matplotlib, requests\n40 + 2", "42"],
  "code-interpreter-node": ["const n: number = 40;\nn + 2", "42"],
  "code-interpreter-r": ["suppressPackageStartupMessages(library(tidyverse))\n40 + 2", "[1] 42"],
};
for (const template of process.env["TEMPLATES"]!.split(",")) {
  const [code, text] = codes[template]!;
  const sb = await sandal.sandboxes.create({ template });
  assert.equal((await sb.runCode(code)).raise().text, text);
  await sb.kill();
}
console.log("ok");
