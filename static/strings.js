/** The page's words in English and Chinese; the browser's language decides. */

const ENGLISH = {
  title: "Feeling and reply",
  welcome: "Write something. First comes the feeling of your message, then a reply.",
  conversation: "Conversation",
  message: "Your message",
  hint: "Enter sends, Shift+Enter starts a new line.",
  send: "Send",
  stop: "Stop",
  renew: "New conversation",
  connecting: "Asking the service…",
  model: "Model: {model} ({precision})",
  loading: "The model is being made ready. {detail} This page looks again by itself.",
  away: "The service can't be reached. This page tries again by itself.",
  standIn:
    "A stand-in model is answering, because the real one could not be fetched; its replies are " +
    "plain. Whoever runs this service gets the real one with: flask --app app fetch-model",
  Positive: "Positive",
  Negative: "Negative",
  stopped: "Stopped. The server forgets this turn; your next message does not build on it.",
  length: "The reply was cut off here: it reached its greatest length.",
  forgotten:
    "The server no longer remembers what stands above (it was idle for too long, or the service " +
    "was restarted). The conversation begins anew here.",
  notShown: "(not shown)",
  textsHidden:
    "This conversation goes on, but the server does not show its texts, because it did not give " +
    "out this conversation's id itself.",
  putBack: "Your message is back in the box.",
  unreachable: "The service can't be reached. Check the connection, then send again.",
  cut: "The connection was lost before the reply ended. Send again to get a whole one.",
  busy: "The service can't take this message just now.",
  retry: "Try again in {seconds} s (after {time}).",
  retryLater: "Try again in a moment.",
  refused: "The service did not accept this message. Change it, then send again.",
  tooLarge: "The message is too long. Shorten it, then send again.",
  failed:
    "Something went wrong in the service ({status}). Try again; if it stays so, tell whoever " +
    "runs it.",
  broken: "Something went wrong in this page. Reload it, then try again.",
  fieldReason: "{field}: {reason}",
};

/** @type {typeof ENGLISH} */
const CHINESE = {
  title: "情感与回复",
  welcome: "写点什么吧。先显示这条消息的情感，再给出回复。",
  conversation: "对话",
  message: "你的消息",
  hint: "按 Enter 发送，Shift+Enter 换行。",
  send: "发送",
  stop: "停止",
  renew: "新对话",
  connecting: "正在连接服务……",
  model: "模型：{model}（{precision}）",
  loading: "模型正在准备中。{detail} 本页会自动再次查询。",
  away: "无法连接到服务，本页会自动重试。",
  standIn:
    "由于无法获取正式模型，目前由替代模型回答，回复会比较简单。" +
    "服务的运行者可用以下命令获取正式模型：flask --app app fetch-model",
  Positive: "正面",
  Negative: "负面",
  stopped: "已停止。服务器会忘记这一轮，下一条消息不会接着它。",
  length: "回复已达到最大长度，在此截断。",
  forgotten: "服务器已不记得以上内容（闲置太久，或服务重新启动过）。对话从这里重新开始。",
  notShown: "（不显示）",
  textsHidden: "这个对话仍在继续，但它的编号不是由服务器发放的，因此服务器不显示其中的文字。",
  putBack: "你的消息已放回输入框。",
  unreachable: "无法连接到服务。请检查网络，然后重新发送。",
  cut: "回复尚未结束，连接就中断了。请重新发送以获得完整回复。",
  busy: "服务暂时无法处理这条消息。",
  retry: "请在 {seconds} 秒后（{time} 以后）重试。",
  retryLater: "请稍后重试。",
  refused: "服务没有接受这条消息。请修改后重新发送。",
  tooLarge: "消息太长。请缩短后重新发送。",
  failed: "服务出错（{status}）。请重试；如果一直如此，请告知服务的运行者。",
  broken: "本页出错。请重新加载后再试。",
  fieldReason: "{field}：{reason}",
};

const isChinese = navigator.language.toLowerCase().startsWith("zh");

/** The interface's language tag, for `lang` and for number formats. */
export const language = isChinese ? "zh-CN" : "en";

const words = isChinese ? CHINESE : ENGLISH;

/**
 * @param {keyof typeof ENGLISH} key
 * @param {Record<string, string | number>} [values] what stands for `{name}` in the text
 */
export function say(key, values = {}) {
  return words[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/**
 * A label in the person's language; labels that the page does not know stay as they are.
 * @param {string} label
 */
export function sayLabel(label) {
  return label === "Positive" || label === "Negative" ? say(label) : label;
}

/**
 * @param {Element} element
 * @param {string} attribute
 */
const keyOf = (element, attribute) =>
  /** @type {keyof typeof ENGLISH} */ (element.getAttribute(attribute));

/** Put the texts of the chosen language into the elements that name one. */
export function translatePage() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-say]")) {
    element.textContent = say(keyOf(element, "data-say"));
  }
  for (const element of document.querySelectorAll("[data-say-label]")) {
    element.setAttribute("aria-label", say(keyOf(element, "data-say-label")));
  }
}
