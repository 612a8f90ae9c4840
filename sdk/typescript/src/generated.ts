// Made by scripts/generate.mjs from docs/openapi.yaml. Do not edit: change the API, then `npm run generate`.

export interface SandboxInfo {
  /** sbx-… */
  id: string;
  /** Unique per owner */
  name: string | null;
  template: string;
  state: "starting" | "running" | "paused" | "stopping";
  createdAt: string;
  lastActiveAt: string;
  /** When it ends if it stays idle */
  expiresAt: string | null;
  /** Idle seconds; 0 = never */
  timeout: number;
  onTimeout: "pause" | "kill";
  metadata: Record<string, string>;
  /** What it got */
  network: SandboxNetwork;
  /** What it got */
  limits: SandboxLimits;
  /** null members: not known before it is up again */
  isolation: SandboxIsolation;
  checkpointable: boolean;
  /** How its first kernel was started: spawn or zygote, or by a warm pool: pool (spawned), pool-zygote (forked) */
  start: string;
  /** Id of the context that run_code takes when none is named */
  defaultContext: string | null;
  node: string;
  /** Paused: why its memory is not pressed out to swap or zram; else null */
  memoryStays: string | null;
}

export interface SandboxList {
  items: SandboxInfo[];
  /** Give it as `after` for the next page */
  next: string | null;
}

export interface Context {
  /** A UUID, also its Jupyter kernel id */
  id: string;
  sandbox: string;
  /** Unique in the sandbox */
  name: string | null;
  language: string;
  /** Name of the kernelspec */
  kernel: string;
  state: "starting" | "idle" | "busy" | "restarting" | "dead";
  executionCount: number;
  cwd: string | null;
  /** Runs that wait */
  queue: number;
  /** Raised by each fresh kernel */
  incarnation: number;
  /** How the kernel before ended */
  lastExit: LastExit | null;
  createdAt: string;
  /** The one that run_code takes for its language */
  default: boolean;
}

export interface LastExit {
  code: number | null;
  signal: number | null;
  /** It was killed for want of memory */
  oom: boolean;
  at: string;
}

export interface ContextList {
  items: Context[];
  next: string | null;
}

export interface Exposed {
  port: number;
  /** The host form where the operator has a domain, else the path form */
  url: string;
  /** On the proxy's own listener; all sandboxes share its origin */
  pathUrl: string;
  /** An origin of its own */
  hostUrl: string;
  /** To be shown as ?sandal_token= or X-Sandal-Token; null: none */
  token: string | null;
}

export interface Interrupted {
  /** The context's, with all its members */
  id: string;
  /** false: there was nothing to interrupt */
  interrupted: boolean;
}

export interface Completions {
  matches: string[];
  /** In code points */
  start: number;
  /** In code points */
  end: number;
}

export interface Inspection {
  found: boolean;
  /** MIME types and their values */
  formats: Record<string, unknown>;
}

export interface Variable {
  name: string;
  type: string;
  shape: unknown;
  length: number | null;
  bytes: number | null;
  preview: string | null;
}

export interface VariableList {
  items: Variable[];
  next: string | null;
}

export interface Entry {
  /** Bytes that are not UTF-8 are told as U+FFFD */
  name: string;
  /** The exact name, where it is not UTF-8 */
  nameBase64?: string;
  /** Absolute */
  path: string;
  /** The exact path, where it is not UTF-8 */
  pathBase64?: string;
  type: "file" | "dir" | "symlink" | "other";
  /** Bytes */
  size: number;
  /** Permission bits in octal: 0644 */
  mode: string;
  /** As seen inside */
  uid: number;
  /** As seen inside */
  gid: number;
  modifiedAt: string | null;
  /** Of a symlink */
  target: string | null;
  targetBase64?: string;
}

export interface EntryList {
  /** In the order of their paths, as bytes */
  items: Entry[];
  /** Give it as `after` for the next page */
  next: string | null;
}

export interface FilePart {
  encoding: "base64";
  offset: number;
  /** Of the whole file; 0 for files that do not tell */
  size: number;
  /** Nothing comes after this part */
  eof: boolean;
  data: string;
}

export interface FileWritten {
  /** false: it took the place of another */
  created: boolean;
  /** Bytes */
  size: number;
}

export interface FileEvent {
  /** overflow: some were left out, list anew; watching: first frame of a WebSocket's watch */
  type: "created" | "modified" | "deleted" | "moved" | "overflow" | "watching";
  path?: string;
  pathBase64?: string;
  /** Of moved: the path before */
  from?: string;
  fromBase64?: string;
}

export interface Upload {
  id: string;
  /** Bytes that have come */
  offset: number;
  /** null: not told yet */
  length: number | null;
  /** The file is in its place */
  done: boolean;
}

export interface ResultData {
  /** The richest format */
  type: string;
  /** Its value: base64 for binary types, JSON for JSON types, else text */
  data: unknown;
  /** What a person would read */
  text: string;
  /** The whole bundle */
  formats: Record<string, unknown>;
  metadata: Record<string, unknown>;
  /** The value of the last expression */
  main: boolean;
  displayId: string | null;
}

export interface RunError {
  name: string;
  message: string;
  traceback: string[];
  /** The code began to run */
  started: boolean;
  /** The context's variables */
  state: "kept" | "lost";
}

export interface Usage {
  queuedMs: number;
  wallMs: number;
  cpuMs: number | null;
  /** Bytes */
  peakMemory: number | null;
}

export interface ExecutionData {
  /** run-… */
  run: string;
  context: string;
  executionCount: number | null;
  /** The last three: it has not ended */
  status: "ok" | "error" | "timeout" | "interrupted" | "aborted" | "oom" | "killed" | "exited" | "output_limit" | "gateway_restart" | "queued" | "running" | "waiting";
  /** The value of the last expression, or what was printed */
  text?: string;
  /** The whole transcript */
  output?: string;
  results?: ResultData[];
  stdout?: string;
  stderr?: string;
  error?: RunError | null;
  /** Bytes cut, by kind; reason: why the log could not be written */
  truncated?: Record<string, unknown> | null;
  /** Output came after the end */
  late?: boolean;
  usage?: Usage | null;
  /** Its outputs are no longer kept */
  expired?: boolean;
}

export interface ExecutionList {
  /** Without outputs */
  items: ExecutionData[];
  next: string | null;
}

export interface QueuedEvent {
  type: "queued";
  run: string;
  seq: number;
  position: number;
}

export interface StartedEvent {
  type: "started";
  run: string;
  seq: number;
  /** Of a run of code */
  context?: string;
  /** Of a run of code */
  executionCount?: number | null;
  /** Of a command */
  pid?: number;
}

export interface TextEvent {
  type: "stdout" | "stderr";
  run: string;
  seq: number;
  text: string;
  late?: boolean;
  /** The end of a stream that was cut */
  tail?: boolean;
}

export interface DisplayEvent {
  type: "display";
  run: string;
  seq: number;
  result: ResultData;
}

export interface UpdateEvent {
  type: "update";
  run: string;
  seq: number;
  displayId: string;
  result: ResultData;
}

export interface ClearEvent {
  type: "clear";
  run: string;
  seq: number;
  wait: boolean;
}

export interface InputEvent {
  /** The run waits for an answer */
  type: "input";
  run: string;
  seq: number;
  prompt: string;
  password: boolean;
}

export interface ErrorEvent {
  type: "error";
  run: string;
  seq: number;
  error: RunError;
}

export interface TruncatedEvent {
  type: "truncated";
  run: string;
  seq: number;
  what: string;
}

export interface SandboxLimits {
  /** null: it has no such limit */
  memoryMib: number | null;
  cpus: number | null;
  pids: number | null;
  diskMib: number | null;
  /** Why the defaults are not held here */
  reason?: string;
}

export interface SandboxNetwork {
  mode: "none" | "egress" | "host";
  /** Rules as they were asked for */
  allow?: unknown;
  deny?: unknown;
  /** deny or public: what no rule names */
  default?: string;
  /** Why it is not what one would expect */
  reason?: string;
}

export interface SandboxIsolation {
  /** none, process, bubblewrap, runc, namespace, gvisor */
  kind: string;
  /** own, host */
  userns: string | null;
  /** filter, none */
  seccomp: string | null;
  /** v1, v2, mixed, none */
  cgroup: string | null;
  /** none, egress, host */
  network: string | null;
  /** What holds its disk limit; none: nothing does */
  disk: string | null;
}

export interface SandboxMetrics {
  sandbox: string;
  at: string;
  /** null, here and below: not known */
  cpuSeconds: number | null;
  memoryBytes: number | null;
  memoryPeakBytes: number | null;
  diskBytes: number | null;
  /** Processes and threads */
  pids: number | null;
  /** Processes that were killed for want of memory */
  oomKills: number | null;
  limits: SandboxLimits;
}

export interface SandboxUsage {
  sandbox: string;
  template: string;
  createdAt: string;
  endedAt: string | null;
  /** Up and not paused, in use or not */
  activeSeconds: number;
  pausedSeconds: number;
}

export interface UsageList {
  /** Of all, on other pages too */
  activeSeconds: number;
  pausedSeconds: number;
  /** Oldest first */
  items: SandboxUsage[];
  next: string | null;
}

export interface DeniedConnection {
  at: string;
  /** null: the name was refused */
  address: string | null;
  /** As it was asked for, where it is known */
  domain: string | null;
  /** tcp, udp, icmp */
  protocol: string | null;
  port: number;
  /** What refused it */
  reason: "rule" | "default" | "none" | "not_public" | "host" | "protocol" | "dns" | "connections";
  /** The rule in `network` that did; null: none, or it is not there any more */
  rule: unknown;
}

export interface NetworkLog {
  /** Oldest first */
  items: DeniedConnection[];
  /** Give it to see what comes after */
  cursor: number;
  /** Older ones that are no longer kept */
  lost: number;
}

export interface ProcessInfo {
  /** As the sandbox sees it; null: it could not be executed */
  pid: number | null;
  /** As it was asked for */
  cmd: unknown;
  cwd: string;
  user: "user" | "root";
  state: "running" | "exited";
  /** gateway_restart: the gateway was stopped while it ran, which ended it */
  status: "ok" | "error" | "timeout" | "oom" | "killed" | "output_limit" | "gateway_restart" | "running";
  background: boolean;
  pty: boolean;
  /** run-…, of its log */
  run: string;
  startedAt: string;
  endedAt: string | null;
  exitCode: number | null;
  /** SIGKILL and the like */
  signal: string | null;
  timedOut: boolean;
}

export interface ProcessList {
  items: ProcessInfo[];
  next: string | null;
}

export interface CommandUsage {
  cpuMs: number | null;
  /** Bytes */
  peakMemory: number | null;
}

export interface CommandResult {
  /** run-…, of its log */
  run: string;
  status: "ok" | "error" | "timeout" | "oom" | "killed" | "output_limit" | "gateway_restart" | "running";
  /** null: it was ended by a signal */
  exitCode?: number | null;
  /** SIGKILL and the like */
  signal?: string | null;
  timedOut?: boolean;
  stdout?: string;
  stderr?: string;
  /** Bytes cut, by kind; reason: why the log could not be written */
  truncated?: Record<string, unknown> | null;
  durationMs?: number;
  /** How stdout and stderr are told, when not as text */
  encoding?: "base64";
  /** A remark on its end */
  message?: string;
  /** Output came after the end, from what it left behind */
  late?: boolean;
  usage?: CommandUsage;
  /** Its outputs are no longer kept */
  expired?: boolean;
}

export interface Template {
  name: string;
  description: string;
  mainLanguage: string;
  languages: TemplateLanguage[];
  /** Its kernels can be started */
  available: boolean;
  /** Why not */
  reason: string | null;
  /** Defaults of its sandboxes */
  limits: Record<string, unknown>;
  /** How its kernels are started */
  start: string;
}

export interface TemplateLanguage {
  name: string;
  kernel: string;
  displayName: string;
  aliases: string[];
}

export interface TemplateList {
  items: Template[];
  next: string | null;
}

export interface Key {
  id: string;
  owner: string;
  name: string;
  scopes: string[];
  createdAt: string;
  /** To the minute */
  lastUsedAt: string | null;
  expiresAt: string | null;
}

export interface NewKey {
  /** With all members of a Key */
  id: string;
  /** In plain; shown here only */
  key: string;
}

export interface KeyList {
  items: Key[];
  next: string | null;
}

export interface Health {
  status: string;
  version: string;
}

/** What each operation takes and answers. */
export interface Operations {
  /** Make a sandbox */
  "sandboxes.create": {
    request: {
      /** Name of the template. */
      template?: string | undefined;
      /** Id of a snapshot, instead of a template. */
      snapshot?: string | undefined;
      /** Unique name, usable as id. */
      name?: string | undefined;
      /** Names and values of your own. */
      metadata?: Record<string, string> | undefined;
      /** Environment of every process in it. */
      env?: Record<string, string> | undefined;
      /** Idle seconds until on_timeout; 0 = never. */
      timeout?: number | undefined;
      /** What happens to an idle sandbox. */
      onTimeout?: "pause" | "kill" | undefined;
      /** Limits of the sandbox. */
      limits?: {
        /** Memory. */
        memoryMib?: number;
        /** Processors; may have a fraction. */
        cpus?: number;
        /** Processes and threads. */
        pids?: number;
        /** Disk. */
        diskMib?: number;
      } | undefined;
      /** Reach of the sandbox, or rules. */
      network?: "none" | "egress" | Record<string, unknown> | undefined;
      /** The least isolation that will do. */
      isolation?: "none" | "process" | "bubblewrap" | "runc" | "namespace" | "gvisor" | undefined;
      /** false: its kernels may be forked from a process that has imported everything, which is quicker and takes less memory, but can't be snapshotted. By default as the template's `start` says. */
      checkpointable?: boolean | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: SandboxInfo;
  };
  /** List sandboxes */
  "sandboxes.list": {
    request: {
      /** Only those in this state. */
      state?: "starting" | "running" | "paused" | "stopping" | undefined;
      /** Only those with these values: metadata.NAME=VALUE. */
      metadata?: Record<string, string> | undefined;
      /** Items in one answer. */
      limit?: number | undefined;
      /** `next` of the answer before. */
      after?: string | undefined;
    };
    response: SandboxList;
  };
  /** Read a sandbox */
  "sandboxes.get": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: SandboxInfo;
  };
  /** Change name, metadata, timeout or network */
  "sandboxes.update": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Another name; "" takes it away. */
      name?: string | undefined;
      /** Replaces the whole object. */
      metadata?: Record<string, string> | undefined;
      /** Idle seconds until on_timeout; 0 = never. */
      timeout?: number | undefined;
      /** What happens to an idle sandbox. */
      onTimeout?: "pause" | "kill" | undefined;
      /** Reach of the sandbox, or rules. */
      network?: "none" | "egress" | Record<string, unknown> | undefined;
    };
    response: SandboxInfo;
  };
  /** End a sandbox and all in it */
  "sandboxes.delete": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: null;
  };
  /** Freeze it with all its state */
  "sandboxes.pause": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: SandboxInfo;
  };
  /** Wake it */
  "sandboxes.resume": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: SandboxInfo;
  };
  /** What it uses now */
  "sandboxes.metrics": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: SandboxMetrics;
  };
  /** How long it was active and paused */
  "sandboxes.usage": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: SandboxUsage;
  };
  /** Connections that were refused */
  "sandboxes.network_log": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** `cursor` of the answer before; 0 = the oldest kept. */
      cursor?: number | undefined;
    };
    response: NetworkLog;
  };
  /** Usage of all sandboxes, also of those that have ended */
  "usage": {
    request: {
      /** Items in one answer. */
      limit?: number | undefined;
      /** `next` of the answer before. */
      after?: string | undefined;
    };
    response: UsageList;
  };
  /** List contexts */
  "contexts.list": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: ContextList;
  };
  /** Start a kernel of its own */
  "contexts.create": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** A language, its alias, or a kernelspec's name; the template's main one by default. */
      language?: string | undefined;
      /** Unique in the sandbox, usable as id. */
      name?: string | undefined;
      /** Where its kernel starts; relative to /workspace. */
      cwd?: string | undefined;
      /** Environment of its kernel, over the sandbox's. */
      env?: Record<string, string> | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Context;
  };
  /** Read a context without naming its sandbox */
  "contexts.find": {
    request: {
      /** Id or name of the context. */
      context: string;
    };
    response: Context;
  };
  /** Read a context */
  "contexts.get": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
    };
    response: Context;
  };
  /** Change its name */
  "contexts.update": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Another name; "" takes it away. */
      name?: string | undefined;
    };
    response: Context;
  };
  /** End a context */
  "contexts.delete": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
    };
    response: null;
  };
  /** Fresh kernel under the same id */
  "contexts.reset": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Context;
  };
  /** Stop the running code, keep the state */
  "contexts.interrupt": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Interrupted;
  };
  /** Completions */
  "contexts.complete": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Code around the cursor. */
      code: string;
      /** In code points; at the end by default. */
      cursor?: number | undefined;
      /** Seconds to wait for running code; 0 answers 409 busy at once. */
      wait?: number | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Completions;
  };
  /** Documentation of a name */
  "contexts.inspect": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Code around the cursor. */
      code: string;
      /** In code points; at the end by default. */
      cursor?: number | undefined;
      /** 1 asks for source code too. */
      detail?: number | undefined;
      /** Seconds to wait for running code; 0 answers 409 busy at once. */
      wait?: number | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Inspection;
  };
  /** Variables with type, shape and preview */
  "contexts.variables": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id or name of the context. */
      context: string;
      /** Seconds to wait for running code; 0 answers 409 busy at once. */
      wait?: number | undefined;
    };
    response: VariableList;
  };
  /** Run code */
  "run_code": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** What to run. */
      code: string;
      /** Id or name of the context; the default one of the language if absent. */
      context?: string | undefined;
      /** Runs in this language's default context, made on first use. */
      language?: string | undefined;
      /** Answer events as they come. Default: false over HTTP, true over WebSocket. */
      stream?: boolean | undefined;
      /** Seconds; 0 = none. */
      timeout?: number | undefined;
      /** Environment, for this run only. */
      env?: Record<string, string> | undefined;
      /** Working directory, for this run only. */
      cwd?: string | undefined;
      /** Answers for input(): lines, or a text. */
      stdin?: string | string[] | undefined;
      /** What input() does when no line is left: wait (default of streams) or raise (default otherwise). */
      onInput?: "wait" | "error" | undefined;
      /** No results, and no count raised. */
      silent?: boolean | undefined;
      /** What happens when nobody follows any more: detach is the default of streams, interrupt otherwise. */
      onDisconnect?: "detach" | "interrupt" | "kill" | undefined;
      /** Keep colours in tracebacks. */
      ansi?: boolean | undefined;
      /** Limits of this run. */
      limits?: {
        /** Bytes of stdout and of stderr, each. */
        outputBytes?: number;
        /** Bytes of all results. */
        resultBytes?: number;
        /** Events. */
        events?: number;
        /** Go on without, or stop as output_limit. */
        onExceed?: "truncate" | "stop";
      } | undefined;
      /** Seconds for which its log stays readable after the end. */
      retain?: number | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: ExecutionData;
  };
  /** List runs, without outputs */
  "runs.list": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Only those of this context. */
      context?: string | undefined;
      /** Items in one answer. */
      limit?: number | undefined;
      /** `next` of the answer before. */
      after?: string | undefined;
    };
    response: ExecutionList;
  };
  /** Read a run */
  "runs.get": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the run. */
      run: string;
    };
    response: ExecutionData;
  };
  /** Interrupt a run */
  "runs.interrupt": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the run. */
      run: string;
    };
    response: null;
  };
  /** Follow the events of a run */
  "runs.attach": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the run. */
      run: string;
      /** Begin after this seq; all by default. */
      after?: number | undefined;
      /** Go on after the result, until the log expires. */
      late?: boolean | undefined;
    };
    response: null;
  };
  /** Answer input() */
  "runs.input": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the run. */
      run: string;
      /** What input() returns. */
      value: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: null;
  };
  /** Run a command */
  "exec": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** A string for `sh -c`, or an array of strings: program and arguments. */
      cmd: string | string[];
      /** user, or root of the sandbox. */
      user?: "user" | "root" | undefined;
      /** Where it starts; relative to /workspace. */
      cwd?: string | undefined;
      /** Environment, over the sandbox's. */
      env?: Record<string, string> | undefined;
      /** Seconds until SIGKILL for it and all that came of it; 0 = none. 300 by default, none for a background process. */
      timeout?: number | undefined;
      /** What it reads from stdin, then its end; nothing by default. */
      stdin?: string | undefined;
      /** How stdin is written here. */
      stdinEncoding?: "text" | "base64" | undefined;
      /** Keep stdin open for processes.input. Default: true with a pty, and in the background where no stdin is given. */
      stdinOpen?: boolean | undefined;
      /** How stdout and stderr are told: text with U+FFFD for bad bytes, or base64. */
      encoding?: "text" | "base64" | undefined;
      /** Answer events as they come. Default: false over HTTP, true over WebSocket. */
      stream?: boolean | undefined;
      /** Answer 201 with the process at once; it goes on by itself. */
      background?: boolean | undefined;
      /** A background process counts as activity of its sandbox. */
      keepAlive?: boolean | undefined;
      /** A terminal instead of pipes; stdout has all that it shows. */
      pty?: {
        /** Columns; 80 by default. */
        cols?: number;
        /** Rows; 24 by default. */
        rows?: number;
      } | undefined;
      /** What happens when nobody follows any more: detach is the default of streams and background processes, kill otherwise. interrupt is SIGINT, then SIGKILL. */
      onDisconnect?: "detach" | "interrupt" | "kill" | undefined;
      /** Limits of its output. */
      limits?: {
        /** Bytes of stdout and of stderr, each, as they are sent. */
        outputBytes?: number;
        /** Events. */
        events?: number;
        /** Go on without, or stop as output_limit. */
        onExceed?: "truncate" | "stop";
      } | undefined;
      /** Seconds for which its log stays readable after the end. */
      retain?: number | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: CommandResult;
  };
  /** List commands that run, and background ones */
  "processes.list": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: ProcessList;
  };
  /** Read a process */
  "processes.get": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
    };
    response: ProcessInfo;
  };
  /** Kill a process and all that came of it */
  "processes.kill": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
    };
    response: null;
  };
  /** Write to its stdin or terminal */
  "processes.input": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
      /** What it reads next. */
      data?: string | undefined;
      /** How data is written here. */
      encoding?: "text" | "base64" | undefined;
      /** The end of its stdin (of a pty: ^D), after data. */
      eof?: boolean | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: null;
  };
  /** Send it a signal */
  "processes.signal": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
      /** By name, like SIGTERM; goes to its process group. */
      signal: string;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: null;
  };
  /** Resize its terminal */
  "processes.resize": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
      /** Columns. */
      cols: number;
      /** Rows. */
      rows: number;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: null;
  };
  /** Follow the output of a process */
  "processes.attach": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Process id, as the sandbox sees it. */
      pid: number;
      /** Begin after this seq; all by default. */
      after?: number | undefined;
      /** Go on after the result, until the log expires. */
      late?: boolean | undefined;
    };
    response: null;
  };
  /** Read a file */
  "fs.read": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the file; relative to /workspace. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
    };
    response: null;
  };
  /** Write a whole file: it is there when all of it has come */
  "fs.write": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the file; relative to /workspace. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** Permission bits in octal; by default those of the file that is there, or 0644. */
      mode?: string | undefined;
    };
    response: null;
  };
  /** Remove a file or a directory */
  "fs.remove": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the file; relative to /workspace. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** Also a directory that is not empty, with all in it. */
      recursive?: boolean | undefined;
    };
    response: null;
  };
  /** Begin a resumable upload (tus 1.0) */
  "fs.upload": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
    };
    response: null;
  };
  /** Where an upload is */
  "fs.upload_state": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the upload. */
      upload: string;
    };
    response: Upload;
  };
  /** Bytes of an upload */
  "fs.upload_append": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the upload. */
      upload: string;
    };
    response: null;
  };
  /** End an upload; what came of it goes */
  "fs.upload_cancel": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Id of the upload. */
      upload: string;
    };
    response: null;
  };
  /** List a directory */
  "fs.list": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the directory; /workspace by default. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** Levels: 1 is the directory's own entries. */
      depth?: number | undefined;
      /** Items in one answer. */
      limit?: number | undefined;
      /** `next` of the answer before. */
      after?: string | undefined;
    };
    response: EntryList;
  };
  /** Make a directory */
  "fs.mkdir": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the file; relative to /workspace. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** Permission bits in octal; 0755 by default. */
      mode?: string | undefined;
      /** Makes what is missing above it; it may be there already. */
      parents?: boolean | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Entry;
  };
  /** Move or rename */
  "fs.move": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of what is moved. */
      from?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      fromBase64?: string | undefined;
      /** Its new path, its name included. */
      to?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      toBase64?: string | undefined;
      /** Takes the place of what is there. */
      overwrite?: boolean | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Entry;
  };
  /** What is at a path */
  "fs.stat": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the file; relative to /workspace. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** What a symlink points to instead of the link itself. */
      follow?: boolean | undefined;
    };
    response: Entry;
  };
  /** Follow changes */
  "fs.watch": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** Path of the directory; /workspace by default. */
      path?: string | undefined;
      /** The same in base64, for names that are not UTF-8; one of the two. */
      pathBase64?: string | undefined;
      /** Also what is below its directories. */
      recursive?: boolean | undefined;
    };
    response: null;
  };
  /** Make a port reachable from outside */
  "expose": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** TCP port inside the sandbox, on 127.0.0.1 or ::1 there. */
      port: number;
      /** Who comes must show a token, which the answer has. Another wish than before changes it. */
      token?: boolean | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: Exposed;
  };
  /** Take a port back */
  "unexpose": {
    request: {
      /** Id or name of the sandbox. */
      sandbox: string;
      /** The exposed port. */
      port: number;
    };
    response: null;
  };
  /** List templates */
  "templates.list": {
    request: {
    };
    response: TemplateList;
  };
  /** Read a template */
  "templates.get": {
    request: {
      /** Name of the template. */
      template: string;
    };
    response: Template;
  };
  /** List API keys */
  "keys.list": {
    request: {
    };
    response: KeyList;
  };
  /** Make an API key; the answer alone shows it in plain */
  "keys.create": {
    request: {
      /** Who owns what is made with it; itself by default. */
      owner?: string | undefined;
      /** For people. */
      name?: string | undefined;
      /** admin, use, attach:SANDBOX. */
      scopes?: string[] | undefined;
      /** Seconds until it ends; never by default. */
      expiresIn?: number | undefined;
      /** Idempotency key: the same request with the same key is done once (also as header Idempotency-Key). */
      key?: string | undefined;
    };
    response: NewKey;
  };
  /** End an API key */
  "keys.delete": {
    request: {
      /** Id of the key. */
      id: string;
    };
    response: null;
  };
  /** Alive */
  "health": {
    request: {
    };
    response: Health;
  };
  /** Ready to take requests */
  "ready": {
    request: {
    };
    response: Health;
  };
}

/** @internal */
export const ROUTES: Record<keyof Operations, string> = {
  "sandboxes.create": "POST /v1/sandboxes",
  "sandboxes.list": "GET /v1/sandboxes",
  "sandboxes.get": "GET /v1/sandboxes/{sandbox}",
  "sandboxes.update": "PATCH /v1/sandboxes/{sandbox}",
  "sandboxes.delete": "DELETE /v1/sandboxes/{sandbox}",
  "sandboxes.pause": "POST /v1/sandboxes/{sandbox}/pause",
  "sandboxes.resume": "POST /v1/sandboxes/{sandbox}/resume",
  "sandboxes.metrics": "GET /v1/sandboxes/{sandbox}/metrics",
  "sandboxes.usage": "GET /v1/sandboxes/{sandbox}/usage",
  "sandboxes.network_log": "GET /v1/sandboxes/{sandbox}/network/log",
  "usage": "GET /v1/usage",
  "contexts.list": "GET /v1/sandboxes/{sandbox}/contexts",
  "contexts.create": "POST /v1/sandboxes/{sandbox}/contexts",
  "contexts.find": "GET /v1/contexts/{context}",
  "contexts.get": "GET /v1/sandboxes/{sandbox}/contexts/{context}",
  "contexts.update": "PATCH /v1/sandboxes/{sandbox}/contexts/{context}",
  "contexts.delete": "DELETE /v1/sandboxes/{sandbox}/contexts/{context}",
  "contexts.reset": "POST /v1/sandboxes/{sandbox}/contexts/{context}/reset",
  "contexts.interrupt": "POST /v1/sandboxes/{sandbox}/contexts/{context}/interrupt",
  "contexts.complete": "POST /v1/sandboxes/{sandbox}/contexts/{context}/complete",
  "contexts.inspect": "POST /v1/sandboxes/{sandbox}/contexts/{context}/inspect",
  "contexts.variables": "GET /v1/sandboxes/{sandbox}/contexts/{context}/variables",
  "run_code": "POST /v1/sandboxes/{sandbox}/run_code",
  "runs.list": "GET /v1/sandboxes/{sandbox}/runs",
  "runs.get": "GET /v1/sandboxes/{sandbox}/runs/{run}",
  "runs.interrupt": "DELETE /v1/sandboxes/{sandbox}/runs/{run}",
  "runs.attach": "GET /v1/sandboxes/{sandbox}/runs/{run}/events",
  "runs.input": "POST /v1/sandboxes/{sandbox}/runs/{run}/input",
  "exec": "POST /v1/sandboxes/{sandbox}/exec",
  "processes.list": "GET /v1/sandboxes/{sandbox}/processes",
  "processes.get": "GET /v1/sandboxes/{sandbox}/processes/{pid}",
  "processes.kill": "DELETE /v1/sandboxes/{sandbox}/processes/{pid}",
  "processes.input": "POST /v1/sandboxes/{sandbox}/processes/{pid}/input",
  "processes.signal": "POST /v1/sandboxes/{sandbox}/processes/{pid}/signal",
  "processes.resize": "POST /v1/sandboxes/{sandbox}/processes/{pid}/resize",
  "processes.attach": "GET /v1/sandboxes/{sandbox}/processes/{pid}/events",
  "fs.read": "GET /v1/sandboxes/{sandbox}/fs/file",
  "fs.write": "PUT /v1/sandboxes/{sandbox}/fs/file",
  "fs.remove": "DELETE /v1/sandboxes/{sandbox}/fs/file",
  "fs.upload": "POST /v1/sandboxes/{sandbox}/fs/uploads",
  "fs.upload_state": "GET /v1/sandboxes/{sandbox}/fs/uploads/{upload}",
  "fs.upload_append": "PATCH /v1/sandboxes/{sandbox}/fs/uploads/{upload}",
  "fs.upload_cancel": "DELETE /v1/sandboxes/{sandbox}/fs/uploads/{upload}",
  "fs.list": "GET /v1/sandboxes/{sandbox}/fs/dir",
  "fs.mkdir": "POST /v1/sandboxes/{sandbox}/fs/dir",
  "fs.move": "POST /v1/sandboxes/{sandbox}/fs/move",
  "fs.stat": "GET /v1/sandboxes/{sandbox}/fs/stat",
  "fs.watch": "GET /v1/sandboxes/{sandbox}/fs/watch",
  "expose": "POST /v1/sandboxes/{sandbox}/expose",
  "unexpose": "DELETE /v1/sandboxes/{sandbox}/expose/{port}",
  "templates.list": "GET /v1/templates",
  "templates.get": "GET /v1/templates/{template}",
  "keys.list": "GET /v1/keys",
  "keys.create": "POST /v1/keys",
  "keys.delete": "DELETE /v1/keys/{id}",
  "health": "GET /healthz",
  "ready": "GET /readyz",
};
