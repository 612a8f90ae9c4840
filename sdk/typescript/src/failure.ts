// Answers of the gateway that say no, as errors.
import {
  AuthenticationError,
  ConflictError,
  InvalidRequestError,
  NotFoundError,
  NotSupportedError,
  PermissionDeniedError,
  RateLimitError,
  SandalError,
  ServerError,
  type ErrorDetails,
} from "./errors.js";

interface Body {
  code?: string;
  message?: string;
  hint?: string;
  pointer?: string;
}

// Statuses of codes, for failures over a WebSocket, which carry none. Codes that are not here are 500's.
const STATUSES: Record<number, string> = {
  400: "invalid_request invalid_json invalid_frame language_not_found",
  401: "unauthorized",
  403: "forbidden foreign_origin foreign_host",
  404: "not_found sandbox_not_found context_not_found run_not_found process_not_found template_not_found",
  405: "method_not_allowed",
  408: "request_timeout",
  409: "conflict name_taken key_reused busy not_waiting isolation_unavailable",
  410: "run_expired upload_lost",
  411: "length_required",
  412: "precondition_failed",
  413: "too_large",
  415: "unsupported_media_type",
  416: "range_not_satisfiable",
  426: "upgrade_required",
  429: "quota_exceeded queue_full",
  431: "headers_too_large",
  501: "not_supported",
  502: "kernel_start_failed kernel_protocol nothing_listens",
  503: "out_of_memory draining starting",
  504: "kernel_timeout",
  507: "storage_full",
};

function statusOf(code: string): number {
  for (const [status, codes] of Object.entries(STATUSES)) {
    if (codes.split(" ").includes(code)) return Number(status);
  }
  return 500;
}

function classOf(status: number): typeof SandalError {
  if (status === 401) return AuthenticationError;
  if (status === 403) return PermissionDeniedError;
  if (status === 404 || status === 410) return NotFoundError;
  if (status === 409 || status === 412) return ConflictError;
  if (status === 429) return RateLimitError;
  if (status === 501) return NotSupportedError;
  return status >= 500 ? ServerError : InvalidRequestError;
}

/** The error that the gateway's `{code, message, …}` stands for. */
export function errorOf(body: Body | undefined, status?: number, details: ErrorDetails = {}): SandalError {
  const code = body?.code ?? "internal";
  const known = status ?? statusOf(code);
  const message = body?.message ?? `the gateway answered ${known}`;
  return new (classOf(known))(code, message, { ...details, status: known, hint: body?.hint, pointer: body?.pointer });
}

/** The gateway goes, or comes: soon there is one again. */
export function comesBack(error: unknown): boolean {
  return error instanceof SandalError && (error.code === "draining" || error.code === "starting");
}

/** Whether asking again later may help: the gateway has done nothing. */
export function passes(error: unknown): error is SandalError {
  if (!(error instanceof SandalError)) return false;
  return error.status === 429 || ["draining", "starting", "out_of_memory", "request_timeout"].includes(error.code);
}
