// Names: camelCase here, snake_case on the wire. What clients name themselves (OPAQUE) stays as it is.
import { finite } from "./check.js";

const OPAQUE = new Set(["metadata", "env", "formats", "data", "shape", "preview"]);

const toCamel = new Map<string, string>();
const toSnake = new Map<string, string>();

function camelName(name: string): string {
  let known = toCamel.get(name);
  if (known === undefined) {
    known = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
    if (toCamel.size < 1000) toCamel.set(name, known); // the wire's names, which are few
  }
  return known;
}

function snakeName(name: string): string {
  let known = toSnake.get(name);
  if (known === undefined) {
    known = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (toSnake.size < 1000) toSnake.set(name, known);
  }
  return known;
}

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename));
  if (value === null || typeof value !== "object") return value;
  const out: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    out[rename(name)] = OPAQUE.has(name) ? member : renamed(member, rename);
  }
  return out;
}

/** An answer of the gateway with the SDK's names. */
export function camelize<T>(value: unknown): T {
  return renamed(value, camelName) as T;
}

/** Fields of a request with the wire's names; what is undefined is left out, and numbers that JSON has not are refused. */
export function snakeize(fields: object): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    out[snakeName(name)] = OPAQUE.has(name) ? value : renamed(value, snakeName);
  }
  finite(out);
  return out;
}
