// exec: commands in the foreground, with terminals, and in the background.
import { camelize, snakeize } from "./case.js";
import type { Core } from "./core.js";
import type { WireEvent } from "./follow.js";
import type { CommandResult, Operations, ProcessInfo, StartedEvent, TextEvent, TruncatedEvent } from "./generated.js";
import type { RequestOptions } from "./http.js";
import { Listing } from "./listing.js";
import { begun, Live, type Shape } from "./live.js";
import { toBase64, unique } from "./platform.js";
import type { AttachOptions } from "./runs.js";

/** The last event of a command. */
export type CommandResultEvent = CommandResult & { type: "result"; seq: number };
export type CommandEvent = StartedEvent | TextEvent | TruncatedEvent | CommandResultEvent;
/** A command that goes on in the foreground. */
export type Command = Live<CommandEvent, CommandResult>;

type Fields = Operations["exec"]["request"];

/** Options of exec. */
export interface ExecOptions extends Omit<Fields, "sandbox" | "cmd" | "stream" | "background"> {
  /** Events as they come: iterate the command. */
  stream?: boolean | undefined;
  /** The answer is a Process, which goes on by itself. */
  background?: boolean | undefined;
  /** Ends the call with the signal's reason, and kills the command. */
  signal?: AbortSignal | undefined;
  /** The promise that it may return is waited for before the call ends; what it throws ends the call and kills the command. */
  onStdout?: ((text: string) => unknown) | undefined;
  onStderr?: ((text: string) => unknown) | undefined;
}

function shape(options: ExecOptions): Shape<CommandEvent, CommandResult> {
  const { onStdout, onStderr, stream } = options;
  return {
    event: (wire: WireEvent) => camelize<CommandEvent>(wire),
    result: (event) => event as CommandResultEvent,
    keeps: Boolean(stream),
    heard: (event) => {
      if (event.type === "stdout") return [onStdout?.(event.text)];
      return event.type === "stderr" ? [onStderr?.(event.text)] : [];
    },
  };
}

function wireOf(cmd: string | string[], options: ExecOptions): Record<string, unknown> {
  const { stream, background, signal, onStdout, onStderr, ...fields } = options;
  return snakeize({ cmd, ...fields, key: fields.key ?? unique() });
}

/** @internal */
export function startCommand(core: Core, sandbox: string, cmd: string | string[], options: ExecOptions): Command {
  const fieldsOf = () => ({ ...wireOf(cmd, options), on_disconnect: options.onDisconnect ?? "detach" });
  const streams = Boolean(options.stream || options.onStdout || options.onStderr || options.signal);
  const target = () => ({ op: "exec" as const, sandbox, fields: fieldsOf(), stream: streams, late: false });
  return begun(core, target, shape(options), options.signal);
}

/** @internal */
export async function startProcess(core: Core, sandbox: string, cmd: string | string[], options: ExecOptions): Promise<Process> {
  const answer = await core.http.json({
    method: "POST",
    path: `/v1/sandboxes/${encodeURIComponent(sandbox)}/exec`,
    json: { ...wireOf(cmd, options), background: true },
    signal: options.signal,
  });
  return new Process(core, sandbox, camelize<ProcessInfo>(answer));
}

/** A command in the background. */
export class Process {
  readonly #core: Core;
  readonly #sandbox: string;
  /** As it was when it was asked for; `refresh()` asks anew. */
  info: ProcessInfo;

  /** @internal */
  constructor(core: Core, sandbox: string, info: ProcessInfo) {
    this.#core = core;
    this.#sandbox = sandbox;
    this.info = info;
  }

  /** As the sandbox sees it. */
  get pid(): number {
    return this.info.pid as number;
  }

  get #named(): { sandbox: string; pid: any } {
    return { sandbox: this.#sandbox, pid: this.pid };
  }

  async refresh(options?: RequestOptions): Promise<ProcessInfo> {
    return (this.info = await this.#core.http.call("processes.get", this.#named, options));
  }

  /** What it prints, from the start or from the event after `after`; `await` waits for its end. */
  attach(options: AttachOptions = {}): Command {
    const fieldsOf = () => snakeize({ run: this.info.run, after: options.after });
    const target = () => ({ op: "runs.attach" as const, sandbox: this.#sandbox, fields: fieldsOf(), stream: true, late: options.late ?? false });
    return begun(this.#core, target, shape({ stream: true }), options.signal);
  }

  /** Waits for its end. */
  async wait(options: { signal?: AbortSignal | undefined } = {}): Promise<CommandResult> {
    const target = { op: "runs.attach" as const, sandbox: this.#sandbox, fields: { run: this.info.run }, stream: true, late: false };
    return new Live(this.#core, target, shape({}), options.signal);
  }

  /** Writes to its stdin or terminal. */
  async input(data: string | Uint8Array, options?: RequestOptions): Promise<void> {
    const fields = typeof data === "string" ? { data } : { data: toBase64(data), encoding: "base64" as const };
    await this.#core.http.call("processes.input", { ...this.#named, ...fields }, options);
  }

  /** Ends its stdin. */
  async eof(options?: RequestOptions): Promise<void> {
    await this.#core.http.call("processes.input", { ...this.#named, eof: true }, options);
  }

  /** SIGTERM, SIGINT and the like, to its process group. */
  async signal(signal: string, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("processes.signal", { ...this.#named, signal }, options);
  }

  async resize(cols: number, rows: number, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("processes.resize", { ...this.#named, cols, rows }, options);
  }

  /** Kills it and all that came of it. */
  async kill(options?: RequestOptions): Promise<void> {
    await this.#core.http.call("processes.kill", this.#named, options);
  }
}

/** The commands of one sandbox that run, and those of the background that have ended. */
export class Processes {
  readonly #core: Core;
  readonly #sandbox: string;

  /** @internal */
  constructor(core: Core, sandbox: string) {
    this.#core = core;
    this.#sandbox = sandbox;
  }

  list(options?: RequestOptions): Listing<Process> {
    return new Listing(async () => {
      const page = await this.#core.http.call("processes.list", { sandbox: this.#sandbox }, options);
      return { items: page.items.map((item) => new Process(this.#core, this.#sandbox, item)), next: null };
    });
  }

  async get(pid: number, options?: RequestOptions): Promise<Process> {
    const info = await this.#core.http.call("processes.get", { sandbox: this.#sandbox, pid: pid as any }, options);
    return new Process(this.#core, this.#sandbox, info);
  }
}
