/** Waiting for the service, and the lines that tell about its model. */

import { fetchReadiness, Problem } from "./api.js";
import { say } from "./strings.js";

const POLL_MS = 1500;

/**
 * Ask until the service can answer, and tell the person meanwhile why it can't.
 * @param {HTMLElement} line gets the model's name, or the reason to wait
 * @param {HTMLElement} standInNotice shown where a stand-in answers
 */
export async function untilReady(line, standInNotice) {
  for (;;) {
    try {
      const { model, precision, stand_in: isStandIn } = await fetchReadiness();
      tell(line, say("model", { model, precision }));
      standInNotice.textContent = isStandIn ? say("standIn") : "";
      standInNotice.hidden = !isStandIn;
      return;
    } catch (error) {
      const detail = error instanceof Problem ? error.detail : "";
      tell(line, error instanceof Problem ? say("loading", { detail }) : say("away"));
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/**
 * A screen reader reads every change, so the same words are not written twice.
 * @param {HTMLElement} line
 * @param {string} text
 */
function tell(line, text) {
  if (line.textContent !== text) line.textContent = text;
}
