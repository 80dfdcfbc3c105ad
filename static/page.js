/** The page: its controls, and what they may do when. */

import { Conversation } from "./conversation.js";
import { explain, mayBeDown } from "./errors.js";
import { untilReady } from "./readiness.js";
import { ensureSession, forgetSession, restoreTurns } from "./session.js";
import { say, translatePage } from "./strings.js";
import { runTurn } from "./turn.js";

/** @param {string} id */
const find = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const form = /** @type {HTMLFormElement} */ (find("composer"));
const box = /** @type {HTMLTextAreaElement} */ (find("text"));
const sendButton = /** @type {HTMLButtonElement} */ (find("send"));
const stopButton = /** @type {HTMLButtonElement} */ (find("stop"));
const renewButton = /** @type {HTMLButtonElement} */ (find("renew"));
const view = new Conversation(find("conversation"), find("welcome"));

let isBusy = false;
/** @type {AbortController | null} stops the turn that runs */
let running = null;
/** What was begun last; it never rejects. */
let current = Promise.resolve();

function updateControls() {
  const focused = document.activeElement;
  sendButton.disabled = isBusy;
  renewButton.disabled = isBusy && !running;
  sendButton.hidden = running !== null;
  stopButton.hidden = running === null;
  if (focused === sendButton || focused === stopButton) box.focus(); // it may be hidden now
}

/**
 * Begin an action unless another one is under way.
 * @param {() => Promise<void>} action
 */
function begin(action) {
  if (!isBusy) current = perform(action);
}

/** @param {() => Promise<void>} action */
async function perform(action) {
  isBusy = true;
  updateControls();
  try {
    await action();
  } catch (error) {
    view.fail(explain(error));
  } finally {
    isBusy = false;
    updateControls();
  }
}

const becomeReady = () => untilReady(find("model"), find("stand-in"));

/** @param {string} text */
function announce(text) {
  find("announcer").textContent = text;
}

/** @param {string} text */
async function send(text) {
  box.value = "";
  running = new AbortController();
  updateControls();
  const failure = await runTurn(view, text, running.signal, announce);
  running = null;
  updateControls();
  if (failure === null) return;
  // What was typed meanwhile stays, below the message that failed.
  // The box grows by it, so the end is looked after again: the reason stands there.
  view.keepEnd(() => {
    box.value = [text, box.value].filter(Boolean).join("\n");
  });
  if (mayBeDown(failure)) await becomeReady();
}

async function renew() {
  running?.abort();
  await current;
  begin(async () => {
    await forgetSession();
    view.clear();
    announce("");
    box.focus();
    await ensureSession();
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = box.value;
  if (text.trim() !== "") begin(() => send(text));
});

box.addEventListener("keydown", (event) => {
  // Safari ends a composition before its Enter key arrives; 229 tells that key.
  const isComposing = event.isComposing || event.keyCode === 229;
  if (event.key !== "Enter" || event.shiftKey || isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

stopButton.addEventListener("click", () => running?.abort());
renewButton.addEventListener("click", renew);

translatePage();
find("model").textContent = say("connecting");
begin(async () => {
  await becomeReady();
  view.restore(await restoreTurns());
});
