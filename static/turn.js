/** One turn: send a message, show its labels and its reply as they arrive. */

import { analyze, isStop } from "./api.js";
import { explain } from "./errors.js";
import { ensureSession } from "./session.js";
import { say } from "./strings.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./exchange.js").Exchange} Exchange
 */

/**
 * @param {Conversation} view
 * @param {string} text
 * @param {AbortSignal} signal stops the turn
 * @param {(text: string) => void} announce tells a screen reader
 * @returns {Promise<unknown>} what made the turn fail; null when it ended well or was stopped
 */
export async function runTurn(view, text, signal, announce) {
  const isFirst = !view.hasExchanges;
  const exchange = view.add(text);
  try {
    const { id, wasForgotten } = await ensureSession(signal);
    if (wasForgotten && !isFirst) view.remark(say("forgotten"), exchange.element);
    await showEvents(view, exchange, analyze(text, id, signal));
    announce(exchange.summary);
    return null;
  } catch (error) {
    if (!isStop(error)) {
      view.keepEnd(() => exchange.fail([...explain(error), say("putBack")]));
      return error;
    }
    view.keepEnd(() => exchange.end(say("stopped")));
    announce(say("stopped"));
    return null;
  }
}

/**
 * @param {Conversation} view
 * @param {Exchange} exchange
 * @param {AsyncIterable<{name: string, data: any}>} events
 */
async function showEvents(view, exchange, events) {
  let isReset = true; // only the words that reset a conversation get no feeling
  let finishReason = null;
  for await (const { name, data } of events) {
    if (name === "sentiment" && data.sentiment !== null) isReset = false;
    if (name === "done") finishReason = data.finish_reason;
    view.keepEnd(() => showEvent(exchange, name, data));
  }
  view.keepEnd(() => exchange.end(finishReason === "length" ? say("length") : ""));
  if (isReset) {
    view.clear();
    view.remark(exchange.reply.textContent);
  }
}

/**
 * @param {Exchange} exchange
 * @param {string} name
 * @param {any} data
 */
function showEvent(exchange, name, data) {
  if (name === "sentiment" && data.sentiment !== null) {
    exchange.showLabel(data.sentiment, data.confidence);
  }
  if (name === "label") exchange.showLabel(data.label, data.confidence, data.task);
  if (name === "delta") exchange.append(data.text);
}
