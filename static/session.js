/** The conversation's id: kept in this tab over a reload, renewed when the service forgot it. */

import { createSession, deleteSession, fetchTurns } from "./api.js";

const KEY = "session_id";

/** @returns {Promise<import("./api.js").Turn[]>} none where there is nothing to go on from */
export async function restoreTurns() {
  const id = sessionStorage.getItem(KEY);
  return (id && (await fetchTurns(id))) || [];
}

/**
 * The id to send the next message with. The service is asked first, because it would take a
 * forgotten id for a new conversation without a word.
 * @param {AbortSignal} [signal]
 * @returns {Promise<{id: string, wasForgotten: boolean}>} whether the service forgot the one before
 */
export async function ensureSession(signal) {
  const old = sessionStorage.getItem(KEY);
  if (old && (await fetchTurns(old, signal))) return { id: old, wasForgotten: false };
  const id = await createSession(signal);
  sessionStorage.setItem(KEY, id);
  return { id, wasForgotten: old !== null };
}

/** Have the service forget this conversation. */
export async function forgetSession() {
  const id = sessionStorage.getItem(KEY);
  if (id) await deleteSession(id);
  sessionStorage.removeItem(KEY);
}
