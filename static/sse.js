/** Server-sent events read from a response's body, wherever the network cuts it. */

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<{name: string, data: any}>} each event with its JSON data, as it arrives
 * @throws {SyntaxError} data that is not JSON
 */
export async function* readEvents(body) {
  let fields = newFields();
  for await (const line of readLines(body)) {
    if (line !== "") {
      readField(line, fields);
      continue;
    }
    if (fields.data.length > 0) {
      yield { name: fields.name, data: JSON.parse(fields.data.join("\n")) };
    }
    fields = newFields();
  }
}

/** @returns {{name: string, data: string[]}} */
const newFields = () => ({ name: "message", data: [] });

/**
 * @param {string} line a comment (it starts with a colon), or a field
 * @param {{name: string, data: string[]}} fields
 */
function readField(line, fields) {
  const colon = line.indexOf(":");
  const field = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (field === "event") fields.name = value;
  if (field === "data") fields.data.push(value);
}

/**
 * Whole lines only: what follows the last line end is a line that was cut off.
 * @param {ReadableStream<Uint8Array>} body
 */
async function* readLines(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) yield line.replace(/\r$/, "");
    }
  } finally {
    await reader.cancel().catch(() => {}); // a body that broke can't be cancelled any more
  }
}
