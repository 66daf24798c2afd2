// Talking to the server: JSON, server-sent events and errors in the API's own shape.
import { settings } from "./store.js";

// The page may be served below a path of a reverse proxy: addresses are relative to it.
const kBase = new URL("../", import.meta.url);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;  // 0: the server was not reached
  }
}

async function request(path, options = {}) {
  const headers = { ...(options.headers ?? {}) };
  if (settings.api_key) headers.Authorization = `Bearer ${settings.api_key}`;
  let response;
  try {
    response = await fetch(new URL(path, kBase), { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw new ApiError(response.status, await error_message(response));
  return response;
}

async function error_message(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.trim().slice(0, 300) || `HTTP ${response.status}`;
  }
}

export async function get_json(path) {
  return (await request(path)).json();
}

// Without a body.
export async function post(path) {
  return (await request(path, { method: "POST" })).json();
}

export async function get_text(path, signal) {
  return (await request(path, { signal })).text();
}

// Splits a byte stream into the data of its events; comments and other fields are dropped.
export async function* event_data(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "", data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      pending += value;
      // A lone CR at the end may be the first half of CR LF.
      const lines = pending.split(/\r\n|\n|\r(?!$)/);
      pending = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Of /v1/responses, whose streams have no "[DONE]".
const kLastEvents = ["response.completed", "response.incomplete", "response.failed"];

// The JSON objects of a streamed reply, until "[DONE]" or what says the same.
export async function* stream_json(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  for await (const data of event_data(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message);
    yield event;
    if (kLastEvents.includes(event.type)) return;
  }
  throw new ApiError(0, "The connection ended before the reply did.");
}
