/** The list of exchanges on the page. */

import { Exchange, make, makeProblem } from "./exchange.js";
import { say } from "./strings.js";

const NEAR_END_PX = 120;

export class Conversation {
  /**
   * @param {HTMLElement} list
   * @param {HTMLElement} welcome shown while the list is empty
   */
  constructor(list, welcome) {
    this.list = list;
    this.welcome = welcome;
  }

  get hasExchanges() {
    return this.list.querySelector(".exchange") !== null;
  }

  clear() {
    this.list.replaceChildren();
    this.welcome.hidden = false;
  }

  /** @param {string | null} message */
  add(message) {
    const exchange = new Exchange(message);
    this.#insert(exchange.element);
    return exchange;
  }

  /** @param {import("./api.js").Turn[]} turns */
  restore(turns) {
    this.clear();
    for (const turn of turns) {
      const exchange = this.add(turn.text);
      if (turn.sentiment !== null) exchange.showLabel(turn.sentiment, null);
      exchange.append(turn.response ?? say("notShown"));
      exchange.reply.classList.toggle("muted", turn.response === null);
      exchange.end();
    }
    if (turns.some((turn) => turn.text === null)) this.remark(say("textsHidden"));
  }

  /**
   * @param {string} text
   * @param {HTMLElement | null} [before] an element of the list; otherwise at its end
   */
  remark(text, before = null) {
    this.#insert(make("p", "remark", text), before);
  }

  /** @param {string[]} sentences */
  fail(sentences) {
    this.#insert(makeProblem(sentences));
  }

  /**
   * Make a change; stay at the end of the page if that is where the reader is.
   * @param {() => void} change
   */
  keepEnd(change) {
    const page = document.documentElement;
    const isAtEnd = page.scrollHeight - page.scrollTop - page.clientHeight < NEAR_END_PX;
    change();
    if (isAtEnd) page.scrollTop = page.scrollHeight;
  }

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement | null} [before]
   */
  #insert(element, before = null) {
    this.welcome.hidden = true;
    this.list.insertBefore(element, before);
    document.documentElement.scrollTop = document.documentElement.scrollHeight;
  }
}
