// Everything that the SDK throws, but for a signal's own reason.
import type { Execution } from "./result.js";

/** What an error of the gateway says beside its message. */
export interface ErrorDetails {
  /** What to do about it. */
  hint?: string | undefined;
  /** JSON pointer to the field at fault. */
  pointer?: string | undefined;
  /** HTTP status; 0 when there was no answer. */
  status?: number | undefined;
  /** X-Request-Id of the answer, for the gateway's log. */
  requestId?: string | undefined;
  /** Seconds after which the gateway wants to be asked again. */
  retryAfter?: number | undefined;
  cause?: unknown;
}

/** The base of all of them. `code` is stable: docs/errors.md lists the gateway's. */
export class SandalError extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  readonly pointer: string | undefined;
  readonly status: number;
  readonly requestId: string | undefined;
  readonly retryAfter: number | undefined;

  constructor(code: string, message: string, details: ErrorDetails = {}) {
    super(details.hint ? `${message} (${details.hint})` : message, details.cause === undefined ? {} : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = details.hint;
    this.pointer = details.pointer;
    this.status = details.status ?? 0;
    this.requestId = details.requestId;
    this.retryAfter = details.retryAfter;
  }
}

/** The request is at fault: 400 and other 4xx. `pointer` names the field. */
export class InvalidRequestError extends SandalError {}
/** 401: no key, or a wrong one. */
export class AuthenticationError extends SandalError {}
/** 403: a good key without the right. */
export class PermissionDeniedError extends SandalError {}
/** 404, or 410 for what is no longer kept. */
export class NotFoundError extends SandalError {}
/** 409 and 412: not in this state. */
export class ConflictError extends SandalError {}
/** 429: a limit or a full queue; the SDK has tried again already. */
export class RateLimitError extends SandalError {}
/** 5xx. */
export class ServerError extends SandalError {}
/** 501: this gateway or its host lacks it. */
export class NotSupportedError extends ServerError {}
/** No answer: the gateway cannot be reached, or the connection went and could not be had again. */
export class ConnectionError extends SandalError {}
/** `requestTimeout` was over. The gateway may still do what it was asked for. */
export class RequestTimeoutError extends SandalError {}

/** What `raise()` throws: the code raised, or its run ended otherwise than `ok`. `code` is the run's status. */
export class ExecutionError extends SandalError {
  /** As the interpreter names it, ZeroDivisionError and the like. */
  readonly errorName: string;
  readonly traceback: string[];
  readonly execution: Execution;

  constructor(execution: Execution) {
    const error = execution.error;
    super(execution.status, error ? `${error.name}: ${error.message}` : `the run ended as ${execution.status}`);
    this.errorName = error?.name ?? "";
    this.traceback = error?.traceback ?? [];
    this.execution = execution;
  }
}
