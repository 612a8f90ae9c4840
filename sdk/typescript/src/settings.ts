// What a client is told, and where it looks for the rest.
import { carriable, number, refused } from "./check.js";
import { environment, hasFiles, keyFile, readTextFile } from "./platform.js";
import { SandalError } from "./errors.js";

/** A WebSocket by the standard's own interface, as far as it is used here. */
export interface WebSocketLike {
  readyState: number;
  onopen: ((event: any) => unknown) | null;
  onmessage: ((event: any) => unknown) | null;
  onclose: ((event: any) => unknown) | null;
  onerror: ((event: any) => unknown) | null;
  send(data: string): void;
  close(code?: number): void;
}

/** Options of a client. All may be left out. */
export interface SandalOptions {
  /** Else SANDAL_API_KEY, else the key file of a gateway on this machine. */
  apiKey?: string | undefined;
  /** Else SANDAL_URL, else http://127.0.0.1:8717. */
  baseUrl?: string | undefined;
  /** Seconds for one call with its retries, and for a pause within a download; 0 = none. Runs have limits of their own. Default 120. */
  requestTimeout?: number | undefined;
  /** Seconds for which a run whose connection went tries to have it again. Default 30. */
  reconnectTimeout?: number | undefined;
  /** Seconds of silence after which a connection that a run or watch is followed over is taken for dead. The gateway says something
   * every 15 s. Default 45. */
  silenceTimeout?: number | undefined;
  /** How often a call is tried again where that is safe. Default 3. */
  maxRetries?: number | undefined;
  /** How runs are followed. `auto`: by WebSocket where there is one, else by HTTP. */
  transport?: "auto" | "websocket" | "http" | undefined;
  /** Seconds after which an unused WebSocket is closed, so that a program can end. Default 1, in browsers 60. */
  idleTimeout?: number | undefined;
  /** Headers of every HTTP request. */
  headers?: Record<string, string> | undefined;
  fetch?: typeof globalThis.fetch | undefined;
  /** In place of the platform's. */
  WebSocket?: (new (url: string, protocols: string[]) => WebSocketLike) | undefined;
}

/** @internal */
export interface Settings {
  baseUrl: string;
  key(): Promise<string | undefined>;
  requestTimeout: number;
  reconnectTimeout: number;
  silenceTimeout: number;
  maxRetries: number;
  idleTimeout: number;
  headers: Record<string, string>;
  fetch: typeof globalThis.fetch;
  WebSocket: SandalOptions["WebSocket"];
}

function socketOf(options: SandalOptions): SandalOptions["WebSocket"] {
  if (options.transport === "http") return undefined;
  const found = options.WebSocket ?? (globalThis as { WebSocket?: SandalOptions["WebSocket"] }).WebSocket;
  if (!found && options.transport === "websocket") {
    throw new SandalError("not_supported", "this platform has no WebSocket: give one, or take transport http");
  }
  return found;
}

// A key of this machine goes to a gateway on this machine alone.
function isLocal(baseUrl: string): boolean {
  const host = new URL(baseUrl).hostname;
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/** @internal */
export function settingsOf(options: SandalOptions): Settings {
  const baseUrl = (options.baseUrl ?? environment("SANDAL_URL") ?? "http://127.0.0.1:8717").replace(/\/+$/, "");
  if (!/^https?:\/\/[^/]/.test(baseUrl)) throw refused("baseUrl", `is no http(s) URL: ${baseUrl}`);
  const given = carriable(options.apiKey === undefined ? "SANDAL_API_KEY" : "apiKey", options.apiKey ?? environment("SANDAL_API_KEY"));
  let found: string | undefined;
  const local = async () => {
    const path = keyFile();
    const text = found ?? (path === undefined ? undefined : await readTextFile(path));
    return (found = carriable(String(path), text) || undefined);
  };
  const silenceTimeout = number("silenceTimeout", options.silenceTimeout, 45);
  if (silenceTimeout === 0) throw refused("silenceTimeout", "is 0: every connection would be taken for dead");
  return {
    baseUrl,
    key: async () => (given !== undefined || !isLocal(baseUrl) ? given : local()),
    requestTimeout: number("requestTimeout", options.requestTimeout, 120),
    reconnectTimeout: number("reconnectTimeout", options.reconnectTimeout, 30),
    silenceTimeout,
    maxRetries: number("maxRetries", options.maxRetries, 3),
    idleTimeout: number("idleTimeout", options.idleTimeout, hasFiles ? 1 : 60),
    headers: options.headers ?? {},
    fetch: options.fetch ?? ((...args) => globalThis.fetch(...args)),
    WebSocket: socketOf(options),
  };
}
