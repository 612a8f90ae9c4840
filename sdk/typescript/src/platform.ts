// What differs between Node, Bun, Deno and browsers. Node's modules are asked for by names that bundlers do not see.

interface ProcessLike {
  env?: Record<string, string | undefined>;
  versions?: { node?: string };
  getuid?: () => number;
}

interface FileSystem {
  readFile(path: string, encoding: "utf8"): Promise<string>;
  writeFile(path: string, data: Uint8Array | string): Promise<void>;
}

const process = (globalThis as { process?: ProcessLike }).process;

/** Node, Bun or Deno: there are files, an environment, and a process that wants to end. */
export const hasFiles = typeof process?.versions?.node === "string";

/** undefined too where the environment may not be read, as in Deno without --allow-env. */
export function environment(name: string): string | undefined {
  try {
    return process?.env?.[name] || undefined;
  } catch {
    return undefined;
  }
}

async function files(): Promise<FileSystem> {
  const name = "node:fs/promises";
  return (await import(/* webpackIgnore: true */ /* @vite-ignore */ name)) as FileSystem;
}

/** Where a gateway on this machine leaves the key that its first start made. */
export function keyFile(): string | undefined {
  try {
    if (process?.getuid?.() === 0) return "/var/lib/sandal/key";
  } catch {
    return undefined; // Deno without --allow-sys
  }
  const home = environment("HOME");
  const state = environment("XDG_STATE_HOME") ?? (home && `${home}/.local/state`);
  return state && `${state}/sandal/key`;
}

/** undefined when it is not there or may not be read. */
export async function readTextFile(path: string): Promise<string | undefined> {
  if (!hasFiles) return undefined;
  try {
    return await (await files()).readFile(path, "utf8");
  } catch {
    return undefined;
  }
}

export async function writeFile(path: string, data: Uint8Array | string): Promise<void> {
  if (!hasFiles) throw new Error("there are no files here: take toBlob()");
  await (await files()).writeFile(path, data);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000) {
    binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  }
  return btoa(binary);
}

/** Rejects with the signal's reason when it is aborted before. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A name that nobody else has. It is no secret: Node 18 has no global crypto, and a page that came by HTTP no randomUUID. */
export function unique(): string {
  const bytes = new Uint8Array(16);
  if (globalThis.crypto) crypto.getRandomValues(bytes);
  else bytes.forEach((_, i) => (bytes[i] = Math.random() * 256));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
