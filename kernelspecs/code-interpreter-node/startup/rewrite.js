// Cells as a REPL runs them: types are stripped, import and export statements become what a script
// may have. Lines stay lines, so that errors point to the right one.
"use strict";
const path = require("path");
const { createRequire, stripTypeScriptTypes } = require("module");
const acorn = createRequire(path.join(process.env.SANDAL_NODE_PREFIX, "package.json"))("acorn");

// Erasable types are blanked out, columns stay; enums, namespaces and parameter properties need a
// transformation, which keeps lines only as far as it can.
function stripTypes(code) {
  try {
    return stripTypeScriptTypes(code);
  } catch (error) {
    if (error.code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") {
      try {
        return stripTypeScriptTypes(code, { mode: "transform" });
      } catch {
        // V8 will say what is wrong
      }
    }
    return code;
  }
}

function importCall(node) {
  const attributes = (node.attributes || []).map((a) => `${JSON.stringify(a.key.name ?? a.key.value)}: ${a.value.raw}`);
  const options = attributes.length ? `, { with: { ${attributes.join(", ")} } }` : "";
  return `await __sandal.import(${node.source.raw}${options})`;
}

const nameOf = (node) => (node.type === "Literal" ? node.raw : node.name);

function importStatement(node) {
  const named = [];
  let whole = null;
  for (const s of node.specifiers) {
    if (s.type === "ImportNamespaceSpecifier") {
      whole = s.local.name;
    } else {
      named.push(`${s.type === "ImportDefaultSpecifier" ? "default" : nameOf(s.imported)}: ${s.local.name}`);
    }
  }
  const braces = named.length ? `{ ${named.join(", ")} }` : "";
  if (whole) {
    return `const ${whole} = ${importCall(node)}${braces ? `, ${braces} = ${whole}` : ""};`;
  }
  return `${braces ? `const ${braces} = ` : ""}${importCall(node)};`;
}

function exportStatement(node, code) {
  if (node.declaration) {
    const inner = code.slice(node.declaration.start, node.end);
    const anonymous = node.type === "ExportDefaultDeclaration" && /Declaration$/.test(node.declaration.type) &&
      !node.declaration.id;
    return anonymous ? `(${inner});` : inner;
  }
  return node.source ? `${importCall(node)};` : "";
}

function walk(node, visit) {
  if (Array.isArray(node)) {
    node.forEach((n) => walk(n, visit));
  } else if (node && typeof node.type === "string") {
    visit(node);
    for (const key of Object.keys(node)) {
      if (key !== "type" && typeof node[key] === "object") {
        walk(node[key], visit);
      }
    }
  }
}

// What acorn cannot parse goes to V8 as it is, which knows more syntax and says what is wrong.
function rewriteModule(code) {
  if (!/\b(?:import|export)\b/.test(code)) {
    return code;
  }
  let tree;
  try {
    tree = acorn.parse(code, {
      ecmaVersion: "latest", sourceType: "module", allowAwaitOutsideFunction: true, allowHashBang: true,
      allowImportExportEverywhere: false, checkPrivateFields: false,
    });
  } catch {
    return code;
  }
  const edits = [];
  const replace = (start, end, text) => {
    const lines = code.slice(start, end).split("\n").length - text.split("\n").length;
    edits.push({ start, end, text: text + "\n".repeat(Math.max(0, lines)) });
  };
  walk(tree, (node) => {
    if (node.type === "ImportDeclaration") {
      replace(node.start, node.end, importStatement(node));
    } else if (/^Export/.test(node.type) && node.type !== "ExportSpecifier") {
      if (node.declaration && exportStatement(node, code) === code.slice(node.declaration.start, node.end)) {
        replace(node.start, node.declaration.start, "");
      } else {
        replace(node.start, node.end, exportStatement(node, code));
      }
    } else if (node.type === "ImportExpression") {
      replace(node.start, node.start + "import".length, "__sandal.import");
    } else if (node.type === "MetaProperty" && node.meta.name === "import") {
      replace(node.start, node.end, "__sandal.meta");
    }
  });
  edits.sort((a, b) => b.start - a.start);
  return edits.reduce((text, e) => text.slice(0, e.start) + e.text + text.slice(e.end), code);
}

// typescript: false leaves types to V8, which refuses them.
module.exports = (code, typescript) => rewriteModule(typescript ? stripTypes(code) : code);
