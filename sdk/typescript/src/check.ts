// What a caller gave, looked at before anything is sent: what no request can carry is refused with its field.
import { InvalidRequestError } from "./errors.js";

/** The error of a field; `pointer` as the gateway's own errors have it. */
export function refused(field: string, what: string): InvalidRequestError {
  return new InvalidRequestError("invalid_request", `${field} ${what}`, { pointer: `/${field.replace(/\./g, "/")}` });
}

/** Seconds or a count, as timers can bear; `otherwise` where there is none. */
export function number(field: string, value: number | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (!(typeof value === "number" && value >= 0 && value < 2_000_000)) throw refused(field, `is ${String(value)}: seconds or a count are wanted`);
  return value;
}

/** A place in a file or a number of bytes. */
export function bytes(field: string, value: number | undefined): number | undefined {
  if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) throw refused(field, `is ${String(value)}: a number of bytes is wanted`);
  return value;
}

/** JSON has no form for NaN, Infinity and BigInts: they would arrive as null, or not at all. */
export function finite(value: unknown, field = ""): void {
  if (typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value))) {
    throw refused(field, `is ${String(value)}: JSON has no such number`);
  }
  if (value === null || typeof value !== "object") return;
  for (const [name, member] of Object.entries(value)) finite(member, field ? `${field}.${name}` : name);
}

/** Fields that a call takes as one object; text in their place is a slip of who is used to another client. */
export function fieldsOf<T extends object>(fields: T): T {
  if (fields === null || typeof fields !== "object") throw refused("fields", `are ${JSON.stringify(fields)}: an object is wanted`);
  return fields;
}

/** The id of what is named by its id or name, or given itself. What a caller without types gave may be neither: `segment` refuses that. */
export function idOf<T extends string | undefined>(one: T | { readonly id: string }): string | T {
  return one !== null && typeof one === "object" ? one.id : (one ?? undefined) as T;
}

/** Half of a surrogate pair has no form in UTF-8: as U+FFFD it would name something else. */
export function wellFormed(field: string, text: string): string {
  if (/\p{Surrogate}/u.test(text)) throw refused(field, "has half of a surrogate pair, which UTF-8 cannot carry");
  return text;
}

/** A key goes in a header, and in a WebSocket's subprotocol. It is not shown. */
export function carriable(field: string, given: string | undefined): string | undefined {
  if (given !== undefined && typeof given !== "string") throw refused(field, `is ${typeof given}: text is wanted`);
  const key = given?.trim();
  if (key !== undefined && !/^[\x21-\x7e]*$/.test(key)) throw refused(field, "has characters that no header can carry: visible ASCII is wanted");
  return key;
}
