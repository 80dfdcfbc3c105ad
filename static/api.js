/** The service's routes, as functions. */

import { readEvents } from "./sse.js";

/**
 * @typedef {{status?: number, title?: string, detail?: string,
 *   errors?: Record<string, string[]> | null}} ProblemBody
 * @typedef {{text: string | null, response: string | null, sentiment: string | null}} Turn
 * @typedef {{model: string, stand_in: boolean, precision: string}} Readiness
 */

/** The service answered, and said no. */
export class Problem extends Error {
  /**
   * @param {ProblemBody} body
   * @param {string | null} [retryAfter] the header's text
   */
  constructor(body, retryAfter = null) {
    super(body.title ?? "");
    this.status = body.status ?? 500;
    this.detail = body.detail ?? body.title ?? "";
    this.errors = body.errors ?? {};
    this.retryAfter = retryAfter;
  }
}

/** No answer at all. */
export class Unreachable extends Error {}

/** An answer that ended before its end. */
export class Cut extends Error {}

/** @param {unknown} error */
export const isStop = (error) => error instanceof DOMException && error.name === "AbortError";

/**
 * @returns {Promise<Readiness>}
 * @throws {Problem} while the model loads
 */
export async function fetchReadiness() {
  return (await request("/readyz")).json();
}

/** @param {AbortSignal} [signal] @returns {Promise<string>} the new session's id */
export async function createSession(signal) {
  const answer = await (await request("/sessions", { method: "POST", signal })).json();
  return answer.session_id;
}

/**
 * @param {string} id
 * @param {AbortSignal} [signal]
 * @returns {Promise<Turn[] | null>} null: the service does not know this session
 */
export async function fetchTurns(id, signal) {
  const response = await orNull(request(sessionPath(id), { signal }));
  return response && (await response.json()).turns;
}

/** @param {string} id one that the service no longer knows will do */
export async function deleteSession(id) {
  await orNull(request(sessionPath(id), { method: "DELETE" }));
}

/**
 * Send a message; yield the events of its turn up to the end of the stream.
 * @param {string} text
 * @param {string} sessionId
 * @param {AbortSignal} signal
 * @throws {Problem | Unreachable | Cut | DOMException} the last where the signal stopped it
 */
export async function* analyze(text, sessionId, signal) {
  const response = await request("/analyze", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ text, session_id: sessionId, stream: true }),
    signal,
  });
  const body = /** @type {ReadableStream<Uint8Array>} */ (response.body);
  let isDone = false;
  try {
    for await (const { name, data } of readEvents(body)) {
      if (name === "error") throw new Problem(data);
      isDone ||= name === "done";
      yield { name, data };
    }
  } catch (error) {
    if (error instanceof Problem || isStop(error)) throw error;
    if (!isDone) throw new Cut(); // after `done` nothing is missing
  }
  if (!isDone) throw new Cut();
}

/** @param {string} id */
const sessionPath = (id) => `/sessions/${encodeURIComponent(id)}`;

/** @param {string} path @param {RequestInit} [options] */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    throw isStop(error) ? error : new Unreachable();
  }
  if (response.ok) return response;
  // Something between the page and the service may answer without a problem object.
  const body = await response.json().catch(() => ({ title: response.statusText }));
  throw new Problem({ ...body, status: response.status }, response.headers.get("Retry-After"));
}

/** @param {Promise<Response>} answer @returns {Promise<Response | null>} null for a 404 */
async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}
