// Makes src/generated.ts and builds dist/esm and dist/cjs out of src, with types for both.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
rmSync("dist", { recursive: true, force: true });

function tsc(...options) {
  const done = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", ".", ...options], { stdio: "inherit" });
  if (done.status !== 0) process.exit(done.status ?? 1);
}

const made = spawnSync(process.execPath, ["scripts/generate.mjs"], { stdio: "inherit" });
if (made.status !== 0) process.exit(made.status ?? 1);
tsc();
tsc("--module", "commonjs", "--moduleResolution", "bundler", "--verbatimModuleSyntax", "false", "--outDir", "dist/cjs");
mkdirSync("dist/cjs", { recursive: true });
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
if (existsSync("../../LICENSE")) copyFileSync("../../LICENSE", "LICENSE"); // into the package; the repository has it once
