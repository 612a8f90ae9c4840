// Writes src/generated.ts: the types of the API and its routes, out of docs/openapi.yaml. Each build does. With --check it compares
// with what SANDAL_OPENAPI says instead.
// Names become camelCase here and on the wire's way in and out (src/case.ts), but for what stands under OPAQUE names.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = here("../src/generated.ts");
const api = parse(readFileSync(process.env.SANDAL_OPENAPI ?? here("../../../docs/openapi.yaml"), "utf8"));

// Classes of the SDK's own have these names, or read better under another one.
const RENAMED = { Sandbox: "SandboxInfo", Execution: "ExecutionData", Result: "ResultData", Process: "ProcessInfo" };
// Their wrappers are written by hand.
const LEFT_OUT = new Set(["Event", "ResultEvent", "Error", "ErrorBody"]);

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
const named = (ref) => {
  const name = ref.split("/").at(-1);
  return RENAMED[name] ?? name;
};
const literal = (value) => JSON.stringify(value);

function comment(text, indent) {
  return text ? `${indent}/** ${text.replaceAll("*/", "* /")} */\n` : "";
}

function type(schema, indent = "") {
  if (schema.$ref) return named(schema.$ref);
  if ("const" in schema) return literal(schema.const);
  if (schema.enum) return schema.enum.map(literal).join(" | ");
  if (schema.anyOf ?? schema.oneOf) return [...new Set((schema.anyOf ?? schema.oneOf).map((s) => type(s, indent)))].join(" | ");
  switch (schema.type) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array": {
      const item = type(schema.items, indent);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      if (schema.properties) return members(schema, indent);
      return `Record<string, ${typeof schema.additionalProperties === "object" ? type(schema.additionalProperties) : "unknown"}>`;
    default:
      return "unknown";
  }
}

// Fields of a request may be undefined by name: `{ name: given?.name }` is what callers write.
function member(name, schema, required, indent, inRequest) {
  const mark = required ? "" : "?";
  const more = !required && inRequest ? " | undefined" : "";
  return `${comment(schema.description, indent)}${indent}${camel(name)}${mark}: ${type(schema, indent)}${more};\n`;
}

function members(schema, indent, inRequest = false) {
  const required = new Set(schema.required ?? []);
  const inner = indent + "  ";
  const lines = Object.entries(schema.properties).map(([name, s]) => member(name, s, required.has(name), inner, inRequest));
  return `{\n${lines.join("")}${indent}}`;
}

function request(operation, indent) {
  let text = "";
  for (const p of operation.parameters ?? []) {
    if (p.in === "header" || p.$ref) continue;
    text += member(p.name, p.schema, p.required, indent, true);
  }
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  for (const [name, schema] of Object.entries(body?.properties ?? {})) {
    text += member(name, schema, (body.required ?? []).includes(name), indent, true);
  }
  return text;
}

function response(operation) {
  for (const [status, answer] of Object.entries(operation.responses)) {
    const schema = answer.content?.["application/json"]?.schema;
    if (status.startsWith("2") && schema) return type(schema);
  }
  return "null";
}

let text = "// Made by scripts/generate.mjs from docs/openapi.yaml. Do not edit.\n\n";
for (const [name, schema] of Object.entries(api.components.schemas)) {
  if (LEFT_OUT.has(name)) continue;
  if (!schema.properties) {
    text += `${comment(schema.description, "")}export type ${RENAMED[name] ?? name} = ${type(schema)};\n\n`;
    continue;
  }
  text += `${comment(schema.description, "")}export interface ${RENAMED[name] ?? name} ${members(schema, "")}\n\n`;
}

const routes = [];
let operations = "";
for (const [path, methods] of Object.entries(api.paths)) {
  if (!path.startsWith("/v1/") && !/^\/(healthz|readyz)$/.test(path)) continue;
  for (const [method, operation] of Object.entries(methods)) {
    const id = operation.operationId;
    if (id === "openapi") continue;
    routes.push(`  ${literal(id)}: ${literal(`${method.toUpperCase()} ${path}`)},`);
    operations += `${comment(operation.summary, "  ")}  ${literal(id)}: {\n    request: {\n${request(operation, "      ")}    };\n    response: ${response(operation)};\n  };\n`;
  }
}
text += `/** What each operation takes and answers. */\nexport interface Operations {\n${operations}}\n\n`;
text += `/** @internal */\nexport const ROUTES: Record<keyof Operations, string> = {\n${routes.join("\n")}\n};\n`;

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/generated.ts is not what that description says");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
