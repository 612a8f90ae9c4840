// One sandbox, and all that can be done in it.
import { camelize, snakeize } from "./case.js";
import { idOf } from "./check.js";
import { type Command, type ExecOptions, type Process, Processes, startCommand, startProcess } from "./commands.js";
import { Contexts } from "./contexts.js";
import type { Core } from "./core.js";
import { errorOf } from "./failure.js";
import { Files } from "./files.js";
import type { CommandResult, Exposed, NetworkLog, Operations, SandboxInfo, SandboxMetrics, SandboxUsage } from "./generated.js";
import { segment, type RequestOptions } from "./http.js";
import { type Run, type RunOptions, Runs, startRun } from "./runs.js";
import type { Execution } from "./result.js";

/** A frozen sandbox: files and memory of every process. */
export interface Snapshot {
  id: string;
  [name: string]: unknown;
}

/** Seconds that running cells are waited for, before ConflictError `busy`. */
export interface WaitOptions extends RequestOptions {
  wait?: number | undefined;
}

export class Sandbox {
  readonly #core: Core;
  /** As the gateway told it last; `refresh()` asks anew. */
  info: SandboxInfo;
  readonly contexts: Contexts;
  readonly fs: Files;
  readonly runs: Runs;
  readonly processes: Processes;

  /** @internal */
  constructor(core: Core, info: SandboxInfo) {
    this.#core = core;
    this.info = info;
    this.contexts = new Contexts(core, info.id);
    this.fs = new Files(core, info.id);
    this.runs = new Runs(core, info.id);
    this.processes = new Processes(core, info.id);
  }

  get id(): string {
    return this.info.id;
  }

  get name(): string | null {
    return this.info.name;
  }

  get template(): string {
    return this.info.template;
  }

  get state(): SandboxInfo["state"] {
    return this.info.state;
  }

  get metadata(): Record<string, string> {
    return this.info.metadata;
  }

  /** Runs code in a live interpreter. With `stream: true` iterate it; awaited it gives the Execution either way. */
  runCode(code: string, options: RunOptions & { stream: true }): Run;
  runCode(code: string, options?: RunOptions): Promise<Execution>;
  runCode(code: string, options: RunOptions = {}): Run | Promise<Execution> {
    return startRun(this.#core, this.id, code, options);
  }

  /** Runs a command: a string by `sh -c`, a list as it is. */
  exec(cmd: string | string[], options: ExecOptions & { background: true }): Promise<Process>;
  exec(cmd: string | string[], options: ExecOptions & { stream: true }): Command;
  exec(cmd: string | string[], options?: ExecOptions): Promise<CommandResult>;
  exec(cmd: string | string[], options: ExecOptions = {}): Promise<Process> | Promise<CommandResult> {
    return options.background ? startProcess(this.#core, this.id, cmd, options) : startCommand(this.#core, this.id, cmd, options);
  }

  /** Opens a port of the sandbox to the outside; the URL that reaches it. With `token: true` the URL carries the token that it asks for. */
  async expose(port: number, options: { token?: boolean | undefined } & RequestOptions = {}): Promise<string> {
    const { url, token } = await this.exposeDetails(port, options);
    return token === null ? url : `${url}${url.includes("?") ? "&" : "?"}sandal_token=${encodeURIComponent(token)}`;
  }

  /** As `expose`, with all forms of the URL and the token by itself. */
  exposeDetails(port: number, options: { token?: boolean | undefined } & RequestOptions = {}): Promise<Exposed> {
    return this.#core.http.call("expose", { sandbox: this.id, port, token: options.token }, options);
  }

  async unexpose(port: number, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("unexpose", { sandbox: this.id, port: port as any }, options);
  }

  async refresh(options?: RequestOptions): Promise<this> {
    this.info = await this.#core.http.call("sandboxes.get", { sandbox: this.id }, options);
    return this;
  }

  /** Changes name, metadata, timeout or network. */
  async update(fields: Omit<Operations["sandboxes.update"]["request"], "sandbox">, options?: RequestOptions): Promise<this> {
    this.info = await this.#core.http.call("sandboxes.update", { ...fields, sandbox: this.id }, options);
    return this;
  }

  /** Freezes it with all its state. What needs it wakes it. */
  async pause(options?: RequestOptions): Promise<this> {
    this.info = await this.#core.http.call("sandboxes.pause", { sandbox: this.id }, options);
    return this;
  }

  async resume(options?: RequestOptions): Promise<this> {
    this.info = await this.#core.http.call("sandboxes.resume", { sandbox: this.id }, options);
    return this;
  }

  metrics(options?: RequestOptions): Promise<SandboxMetrics> {
    return this.#core.http.call("sandboxes.metrics", { sandbox: this.id }, options);
  }

  usage(options?: RequestOptions): Promise<SandboxUsage> {
    return this.#core.http.call("sandboxes.usage", { sandbox: this.id }, options);
  }

  /** Connections that were refused. */
  networkLog(options: { cursor?: number | undefined } & RequestOptions = {}): Promise<NetworkLog> {
    return this.#core.http.call("sandboxes.network_log", { sandbox: this.id, cursor: options.cursor }, options);
  }

  async #post(what: string, fields: object, options: RequestOptions): Promise<unknown> {
    return this.#core.http.json({
      method: "POST",
      path: `/v1/sandboxes/${segment(this.id)}/${what}`,
      json: snakeize(fields),
      signal: options.signal,
      requestTimeout: options.requestTimeout,
    });
  }

  /**
   * Live copies, each with the state of every context. When one cannot be made its error is thrown, and the others are ended
   * again. NotSupportedError where the gateway cannot.
   */
  async fork(options: { count?: number | undefined } & WaitOptions = {}): Promise<Sandbox[]> {
    const answer = await this.#post("fork", { count: options.count ?? 1, wait: options.wait }, options);
    const list = (Array.isArray(answer) ? answer : (answer as { items: unknown[] }).items) as { sandbox?: unknown; error?: object }[];
    const made = list.filter((item) => item.sandbox).map((item) => new Sandbox(this.#core, camelize<SandboxInfo>(item.sandbox)));
    const failed = list.find((item) => item.error);
    if (!failed) return made;
    await Promise.allSettled(made.map((sandbox) => sandbox.kill()));
    throw errorOf(failed.error);
  }

  /** Keeps it as it stands. NotSupportedError where the gateway cannot. */
  async snapshot(options: WaitOptions = {}): Promise<Snapshot> {
    return camelize<Snapshot>(await this.#post("snapshots", { wait: options.wait }, options));
  }

  /** Rolls it back to one of its snapshots. */
  async restore(snapshot: string | { id: string }, options: WaitOptions = {}): Promise<this> {
    this.info = camelize<SandboxInfo>(await this.#post("restore", { snapshot: idOf(snapshot), wait: options.wait }, options));
    return this;
  }

  /** Ends it and all in it. */
  async kill(options?: RequestOptions): Promise<void> {
    await this.#core.http.call("sandboxes.delete", { sandbox: this.id }, options);
  }

  /** `await using`: ended with the block; one that has ended already is as good. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch((error: { status?: number }) => {
      if (error.status !== 404) throw error;
    });
  }
}
