// What a value looks like: a mime bundle.
"use strict";
const util = require("util");
const { cleanStack } = require("./errors.js");

const JSON_MAX = 1 << 20; // characters of an object's JSON beside its text
const HTML_ROWS = 100;

function toText(value) {
  const text = util.inspect(value, { depth: 4, maxArrayLength: 100, maxStringLength: 10000, breakLength: 100 });
  return util.types.isNativeError(value) ? cleanStack(text) : text;
}

// Data alone: what JSON can carry without loss. Instances of classes stay text.
function isData(value, depth) {
  if (value === null || typeof value === "string" || typeof value === "boolean") {
    return true;
  }
  if (typeof value === "number") {
    return true; // NaN and infinities are null, as everywhere
  }
  if (typeof value !== "object" || depth > 100 || util.types.isProxy(value)) {
    return false;
  }
  if (Array.isArray(value)) {
    return value.every((v) => v === undefined || isData(v, depth + 1));
  }
  const proto = Object.getPrototypeOf(value);
  if (proto !== null && Object.getPrototypeOf(proto) !== null) {
    return false;
  }
  return Object.values(Object.getOwnPropertyDescriptors(value)).every((d) => !d.get && !d.set && (d.value === undefined || isData(d.value, depth + 1)));
}

function toJson(value) {
  if (value === null || typeof value !== "object") {
    return undefined;
  }
  try {
    if (isData(value, 0)) {
      const text = JSON.stringify(value);
      return text.length <= JSON_MAX ? JSON.parse(text) : undefined;
    }
  } catch {
    // cyclic, too deep
  }
  return undefined;
}

const base64 = (data) =>
  ArrayBuffer.isView(data) ? Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64")
    : data instanceof ArrayBuffer ? Buffer.from(data).toString("base64") : data;

// Hooks that values may have, first of them IJavaScript's own.
const HOOKS = [
  ["text/html", (v) => v._toHtml?.() ?? (typeof v.toHTML === "function" && typeof v.numRows === "function" ? v.toHTML({ limit: HTML_ROWS }) : undefined)],
  ["image/svg+xml", (v) => v._toSvg?.()],
  ["image/png", (v) => v._toPng?.() ?? (typeof v.toBuffer === "function" && typeof v.getContext === "function" ? v.toBuffer("image/png") : undefined)],
  ["image/jpeg", (v) => v._toJpeg?.()],
];

function toMime(value) {
  if (value === undefined || value === null || (typeof value !== "object" && typeof value !== "function")) {
    return { "text/plain": toText(value) };
  }
  const bundle = {};
  const attempt = (fn) => {
    try {
      return fn();
    } catch {
      return undefined;
    }
  };
  Object.assign(bundle, attempt(() => value._toMime?.()));
  if (!("text/plain" in bundle)) {
    bundle["text/plain"] = attempt(() => toText(value)) ?? "[object]";
  }
  for (const [type, hook] of HOOKS) {
    const data = type in bundle || util.types.isProxy(value) ? undefined : attempt(() => base64(hook(value)));
    if (typeof data === "string") {
      bundle[type] = data;
    }
  }
  const json = Object.keys(bundle).length === 1 ? toJson(value) : undefined;
  if (json !== undefined) {
    bundle["application/json"] = json;
  }
  return bundle;
}

module.exports = { toMime, toText, base64 };
