/// <reference lib="esnext.disposable" preserve="true" />
import "./dispose.js";

export { Sandal, Sandboxes, Snapshots, Templates, Keys } from "./client.js";
export { Sandbox, type Snapshot, type WaitOptions } from "./sandbox.js";
export { Contexts } from "./contexts.js";
export { Files, FileWatch, type Data, type ReadOptions, type UploadProgress, type WriteOptions, type WatchOptions } from "./files.js";
export { Processes, Process, type Command, type CommandEvent, type CommandResultEvent, type ExecOptions } from "./commands.js";
export { Runs, type AttachOptions, type ContextRef, type ResultEvent, type Run, type RunEvent, type RunOptions } from "./runs.js";
export { Execution, Result, type DataFrame, type DataFrameColumn } from "./result.js";
export { Live } from "./live.js";
export { Listing } from "./listing.js";
export { Tools, type ToolFormat, type ToolOptions, type ToolResult } from "./tools.js";
export type { SandalOptions, WebSocketLike } from "./settings.js";
export type { RequestOptions } from "./http.js";
export * from "./errors.js";
export type * from "./generated.js";
