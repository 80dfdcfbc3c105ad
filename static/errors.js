/** Failures told in words, with what to do about them. */

import { Cut, Problem, Unreachable } from "./api.js";
import { language, say } from "./strings.js";

/**
 * @param {unknown} error
 * @returns {string[]} sentences, the most important first
 */
export function explain(error) {
  if (error instanceof Unreachable) return [say("unreachable")];
  if (error instanceof Cut) return [say("cut")];
  if (error instanceof Problem) return [...explainStatus(error), error.detail, ...reasons(error)];
  console.error(error);
  return [say("broken")];
}

/** @param {unknown} error @returns {boolean} whether the service may be down or loading */
export function mayBeDown(error) {
  return error instanceof Unreachable || error instanceof Cut ||
    (error instanceof Problem && error.status === 503);
}

/** @param {Problem} problem */
function explainStatus(problem) {
  if (problem.status === 503) return [say("busy"), whenToRetry(problem.retryAfter)];
  if (problem.status === 413) return [say("tooLarge")];
  if (problem.status >= 500) return [say("failed", { status: problem.status })];
  return [say("refused")];
}

/** @param {string | null} retryAfter seconds, or a date */
function whenToRetry(retryAfter) {
  const seconds = Number(retryAfter ?? NaN);
  const time = Number.isNaN(seconds) ? Date.parse(retryAfter ?? "") : Date.now() + seconds * 1000;
  if (Number.isNaN(time)) return say("retryLater");
  return say("retry", {
    seconds: Math.max(0, Math.ceil((time - Date.now()) / 1000)),
    time: new Date(time).toLocaleTimeString(language),
  });
}

/** @param {Problem} problem */
function reasons(problem) {
  return Object.entries(problem.errors).flatMap(([field, list]) =>
    [list].flat().map((reason) => say("fieldReason", { field, reason: String(reason) })),
  );
}
