// Requests to the server that the page came from.

/** An answer that is no success: `status` is the server's, 0 where it was not reached. */
class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...(options.body && { "Content-Type": "application/json" }), ...(store.key && { Authorization: `Bearer ${store.key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    const { error } = JSON.parse(text);
    message = error.message ?? error;
  } catch {
    // What is no JSON is shown as it is.
  }
  throw new Refusal(response.status, message || `The server answered with status ${response.status}.`);
}

/** The models' names. */
async function modelNames() {
  const { data } = await (await ask("/v1/models")).json();
  return data.map((model) => model.id);
}

/** The objects of an answer's stream, as they come. */
async function* streamed(body, signal) {
  const response = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal(0, "The connection ended before the answer did.");
    const events = (waiting + value).replaceAll("\r\n", "\n").split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const object = JSON.parse(data);
      if (object.error) throw new Refusal(500, object.error.message ?? String(object.error));
      yield object;
    }
  }
}

/**
 * Asks for an answer and writes it into `message` as it comes; `changed` is called after each piece. An answer that was
 * stopped or failed keeps what had come.
 */
async function answer(message, conversation, signal, changed) {
  let first = null, pieces = 0;
  const measure = (tokens) => {
    // The pace is that from the first token to the last; of what came at once there is none to tell.
    const seconds = (performance.now() - first) / 1000;
    message.stats = { tokens, speed: first !== null && tokens > 1 && seconds > 0.05 ? (tokens - 1) / seconds : 0 };
  };
  try {
    for await (const chunk of streamed(conversation, signal)) {
      const choice = chunk.choices?.[0];
      const reasoning = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
      const content = choice?.delta?.content ?? "";
      if (reasoning || content) {
        first ??= performance.now();
        pieces += 1;
        message.reasoning = (message.reasoning ?? "") + reasoning;
        message.content += content;
        measure(pieces);
      }
      if (choice?.finish_reason) message.end = choice.finish_reason;
      // The server's count is the true one: a piece may hold several tokens.
      if (chunk.usage) measure(chunk.usage.completion_tokens);
      changed();
    }
  } catch (error) {
    if (error.name === "AbortError") message.end = "stopped";
    else {
      message.error = error.message;
      message.status = error.status ?? 0;
    }
  }
}
