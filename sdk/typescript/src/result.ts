// What a run leaves: the Execution and its Results.
import { camelize } from "./case.js";
import { ExecutionError, SandalError } from "./errors.js";
import type { ExecutionData, ResultData, RunError, Usage } from "./generated.js";
import { fromBase64, writeFile } from "./platform.js";

const FRAME = "application/vnd.dataframe+json";

/** A column of a data frame. Missing values are null, dates ISO 8601, integers beyond 2^53 strings. */
export interface DataFrameColumn {
  name: string | number | null | (string | number | null)[];
  dtype: string;
  values: unknown[];
  categories?: unknown[];
  ordered?: boolean;
}

/** A table with its types: the first rows of a data frame that was shown. */
export interface DataFrame {
  columns: DataFrameColumn[];
  index: { name: unknown; dtype: string | string[]; values: unknown[] };
  /** Rows and columns of the whole. */
  shape: [number, number];
  /** How many of the first rows are here. */
  rows: number;
}

// The types that a file's suffix may mean, the likeliest first.
const SUFFIXES: [suffix: string, types: string[]][] = [
  [".plotly.json", ["application/vnd.plotly.v1+json"]],
  [".dataframe.json", [FRAME]],
  [".json", ["application/json", "application/vnd.plotly.v1+json", FRAME]],
  [".txt", ["text/plain"]],
  [".html", ["text/html"]],
  [".htm", ["text/html"]],
  [".md", ["text/markdown"]],
  [".tex", ["text/latex"]],
  [".png", ["image/png"]],
  [".jpg", ["image/jpeg"]],
  [".jpeg", ["image/jpeg"]],
  [".svg", ["image/svg+xml"]],
  [".gif", ["image/gif"]],
  [".webp", ["image/webp"]],
  [".pdf", ["application/pdf"]],
  [".js", ["application/javascript"]],
];

function isBinary(type: string): boolean {
  return (/^(image|audio|video|font)\//.test(type) && type !== "image/svg+xml") || type === "application/pdf" || type === "application/octet-stream";
}

function label(name: DataFrameColumn["name"]): string {
  return Array.isArray(name) ? name.join(" / ") : String(name);
}

/** One thing that the interpreter rendered. */
export class Result implements ResultData {
  /** The richest format of the bundle. */
  readonly type: string;
  /** Its value: base64 of binary types, a JSON value of JSON types, else a string. */
  readonly data: any;
  readonly text: string;
  /** The whole bundle, by MIME type. */
  readonly formats: Record<string, any>;
  readonly metadata: Record<string, any>;
  /** Whether it is the value of the last expression. */
  readonly main: boolean;
  readonly displayId: string | null;

  constructor(data: ResultData) {
    this.type = data.type;
    this.data = data.data;
    this.text = data.text;
    this.formats = data.formats;
    this.metadata = data.metadata;
    this.main = data.main;
    this.displayId = data.displayId;
  }

  #value(type: string): unknown {
    if (!(type in this.formats)) {
      throw new SandalError("no_such_format", `this result has no ${type}, but ${Object.keys(this.formats).join(", ")}`);
    }
    return this.formats[type];
  }

  /** The value of one of its formats, as bytes: what a file of that type holds. */
  toBytes(type = this.type): Uint8Array<ArrayBuffer> {
    const value = this.#value(type);
    if (typeof value !== "string") return new TextEncoder().encode(JSON.stringify(value));
    return isBinary(type) ? fromBase64(value) : new TextEncoder().encode(value);
  }

  toBlob(type = this.type): Blob {
    return new Blob([this.toBytes(type)], { type });
  }

  /**
   * Writes one of its formats to a file of the local machine, and resolves to its path. Unless `type` is named, the suffix chooses
   * among the formats that are there: a SandalError `no_such_format` if they have none for it. A suffix that no format has, and
   * none, get the richest.
   */
  async save(path: string, type?: string): Promise<string> {
    await writeFile(path, this.toBytes(type ?? this.#typeFor(path)));
    return path;
  }

  #typeFor(path: string): string {
    const types = SUFFIXES.filter(([suffix]) => path.toLowerCase().endsWith(suffix)).flatMap(([, kinds]) => kinds);
    return types.find((kind) => kind in this.formats) ?? types[0] ?? this.type;
  }

  /** The table with its types, when a data frame was shown. */
  get dataFrame(): DataFrame | null {
    return (this.formats[FRAME] as DataFrame | undefined) ?? null;
  }

  #frame(): DataFrame {
    return this.#value(FRAME) as DataFrame;
  }

  /** The rows of a data frame, each by the names of its columns. */
  rows(): Record<string, unknown>[] {
    const frame = this.#frame();
    return Array.from({ length: frame.rows }, (_, i) => Object.fromEntries(frame.columns.map((column) => [label(column.name), column.values[i]])));
  }

  /** The columns of a data frame by name. */
  columns(): Record<string, unknown[]> {
    return Object.fromEntries(this.#frame().columns.map((column) => [label(column.name), column.values]));
  }
}

/** How a run ended, and all that came of it. */
export class Execution {
  /** Id of the run. */
  readonly run: string;
  readonly context: string;
  readonly executionCount: number | null;
  readonly status: ExecutionData["status"];
  /** What a REPL would print for the last expression; where there is no value, what was printed. */
  readonly text: string;
  /** All of it as a person would read it: stdout, stderr, text and error in order. */
  readonly output: string;
  readonly results: Result[];
  readonly stdout: string;
  readonly stderr: string;
  readonly error: RunError | null;
  /** Bytes cut, by kind; null: nothing was. */
  readonly truncated: Record<string, unknown> | null;
  /** Output came after the end. */
  readonly late: boolean;
  readonly usage: Usage | null;
  /** Its outputs are no longer kept. */
  readonly expired: boolean;

  /** @internal */
  constructor(data: ExecutionData) {
    this.run = data.run;
    this.context = data.context;
    this.executionCount = data.executionCount;
    this.status = data.status;
    this.text = data.text ?? "";
    this.output = data.output ?? "";
    this.results = (data.results ?? []).map((result) => new Result(result));
    this.stdout = data.stdout ?? "";
    this.stderr = data.stderr ?? "";
    this.error = data.error ?? null;
    this.truncated = data.truncated ?? null;
    this.late = data.late ?? false;
    this.usage = data.usage ?? null;
    this.expired = data.expired ?? false;
  }

  /** @internal */
  static of(wire: unknown): Execution {
    return new Execution(camelize<ExecutionData>(wire));
  }

  get ok(): boolean {
    return this.status === "ok";
  }

  /** Throws an ExecutionError unless the run ended well; else gives the Execution back. */
  raise(): this {
    if (this.error) throw new ExecutionError(this);
    return this;
  }
}
