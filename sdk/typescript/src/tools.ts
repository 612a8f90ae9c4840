// The middle of an agent's loop: a model's tool call in, the block to send back out.
import type { Core } from "./core.js";
import { SandalError } from "./errors.js";
import type { RequestOptions } from "./http.js";
import { unique } from "./platform.js";

/** Whose blocks they are: Anthropic Messages, OpenAI Responses, OpenAI Chat Completions, Gemini, MCP. */
export type ToolFormat = "anthropic" | "openai" | "openai-chat" | "gemini" | "mcp";

/** Where a call runs, and how much of what came of it the model reads. */
export interface ToolOptions extends RequestOptions {
  /** Else it is seen from the block. */
  format?: ToolFormat | undefined;
  /** A sandbox that is there. */
  sandbox?: string | { readonly id: string } | undefined;
  /** A key of your own, one a conversation: its sandbox is made by the first call. Else all calls of a client are one conversation. */
  session?: string | undefined;
  /** Seconds that code may run for, at most. */
  timeout?: number | undefined;
  /** Most tokens of text, as the gateway estimates them. */
  maxTokens?: number | undefined;
  /** false: no pictures in the answer. */
  images?: boolean | undefined;
}

/** What `call` answers: a CallToolResult of the Model Context Protocol. */
export interface ToolResult {
  content: ({ type: "text"; text: string } | { type: "image"; data: string; mimeType: string })[];
  isError?: boolean;
}

/** The format of a tool call, by its shape. */
function formatOf(block: any): ToolFormat {
  if (block?.type === "tool_use") return "anthropic";
  if (block?.type === "function_call") return "openai";
  if (block?.type === "function" && block.function) return "openai-chat";
  if (block?.functionCall || (block?.args && block?.name)) return "gemini";
  throw new SandalError("invalid_request", "this is no tool call that is known by its shape: name its format");
}

export class Tools {
  readonly #core: Core;
  readonly #session = `sdk-${unique()}`;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  /** What goes into a request's `tools`. */
  async definitions<T = any>(format: ToolFormat, options: RequestOptions = {}): Promise<T[]> {
    return (await this.#core.http.json({ method: "GET", path: "/v1/tools", query: { format }, ...options })) as T[];
  }

  /** Does what a model's tool call asks for; the block to send back. Errors of the code are in it, so that the model can mend it. */
  async runToolCall<T = any>(block: object, options: ToolOptions = {}): Promise<T> {
    const { sandbox, session, timeout, maxTokens, images, signal, requestTimeout } = options;
    const query = {
      format: options.format ?? formatOf(block),
      ...(sandbox === undefined ? { session: session ?? this.#session } : { sandbox: typeof sandbox === "object" ? sandbox.id : sandbox }),
      timeout,
      max_tokens: maxTokens,
      images,
    };
    // Code has its own time limit.
    const request = { method: "POST", path: "/v1/tools/run_code", query, json: block, signal, requestTimeout: requestTimeout ?? 0 };
    return (await this.#core.http.json(request)) as T;
  }

  /** The tool for any other framework: `(name, args) => result`. */
  call(name: string, args: object, options: Omit<ToolOptions, "format"> = {}): Promise<ToolResult> {
    return this.runToolCall<ToolResult>({ name, arguments: args }, { ...options, format: "mcp" });
  }
}
