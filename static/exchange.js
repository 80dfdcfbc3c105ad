/** One exchange on the page: a message, its labels, its reply. Texts are text nodes only. */

import { language, say, sayLabel } from "./strings.js";

const percent = new Intl.NumberFormat(language, { style: "percent" });

/**
 * @param {string} tag
 * @param {string} className
 * @param {...(string | Node)} content
 */
export function make(tag, className, ...content) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...content);
  return element;
}

export class Exchange {
  /** @param {string | null} message null: the service does not show it */
  constructor(message) {
    this.chips = make("div", "chips");
    this.reply = make("p", "reply");
    this.reply.dir = "auto";
    const own = make("p", "message", message ?? say("notShown"));
    own.dir = "auto";
    own.classList.toggle("muted", message === null);
    this.element = make("article", "exchange", own, this.chips, this.reply);
    this.element.setAttribute("aria-busy", "true");
  }

  /**
   * @param {string} label
   * @param {number | null} confidence null where only the label was kept
   * @param {string} [task] named on the chip, for labels other than the feeling
   */
  showLabel(label, confidence, task) {
    const name = make("strong", "", sayLabel(label));
    const chip = make("span", "chip", task ? `${task}: ` : "", name);
    if (confidence !== null) chip.append(` ${percent.format(confidence)}`);
    chip.dir = "auto";
    chip.dataset.label = label.toLowerCase();
    this.chips.append(chip);
  }

  /** @param {string} text */
  append(text) {
    const last = this.reply.lastChild;
    if (last instanceof Text) last.appendData(text);
    else this.reply.append(text);
  }

  /** What a screen reader is told once the reply is whole. */
  get summary() {
    return `${this.chips.textContent} ${this.reply.textContent}`;
  }

  /** @param {string} [remark] a line below the reply */
  end(remark) {
    this.element.setAttribute("aria-busy", "false");
    if (remark) this.element.append(make("p", "remark", remark));
  }

  /** @param {string[]} sentences */
  fail(sentences) {
    this.end();
    this.element.append(makeProblem(sentences));
  }
}

/** @param {string[]} sentences */
export function makeProblem(sentences) {
  const problem = make("div", "problem", ...sentences.map((sentence) => make("p", "", sentence)));
  problem.setAttribute("role", "alert");
  return problem;
}
