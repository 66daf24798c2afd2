// /v1/responses, which runs tools of MCP servers: the request of a chat, and what its events add to a reply.
//
// A reply has its items about tools in `items`: {item, at, done, answer}. item: as the API has it; at: how much of the reply's
// text stands in front of it; done: it is complete; answer: whether the user agrees to the call that it asks about.
import { ApiError } from "./api.js";
import { picture_parts } from "./pictures.js";
import { read_logprobs } from "./tokens.js";

// Items whose call the user has still to agree to, or not.
export function open_questions(variant) {
  return (variant?.items ?? []).filter((one) => one.done && one.item.type === "mcp_approval_request" && one.answer === undefined);
}

// A message of the conversation as items of the input.
export function input_items(message) {
  if (message.role === "user") {
    return [{ role: "user", content: message.images ? picture_parts(message.images, message.text, "input_image") : message.text }];
  }
  const variant = message.variants[message.at];
  if (!variant?.items?.length) return variant?.text ? [{ role: "assistant", content: variant.text }] : [];
  const input = [];
  let from = 0;
  const say = (until) => {
    const text = variant.text.slice(from, until).trim();
    if (text !== "") input.push({ role: "assistant", content: text });
    from = until;
  };
  for (const { item, at, done, answer } of variant.items) {
    if (!done) continue;
    say(at);
    input.push(item);
    if (answer !== undefined) input.push({ type: "mcp_approval_response", approval_request_id: item.id, approve: answer });
  }
  say(variant.text.length);
  return input;
}

// fields: the user's own, by their names in chat completions.
export function response_request({ model, messages, system, servers, alternatives, fields }) {
  const { max_tokens, ...rest } = fields;
  return {
    model, store: false, input: messages.flatMap(input_items),
    tools: servers.map((label) => ({ type: "mcp", server_label: label })),
    ...(system.trim() !== "" && { instructions: system }),
    ...(alternatives > 0 && { include: ["message.output_text.logprobs"], top_logprobs: alternatives }),
    ...(max_tokens !== undefined && { max_output_tokens: max_tokens }),
    ...rest,
  };
}

// Reads one stream of events into a reply.
export class ResponseReader {
  constructor(variant) {
    this.variant = variant;
    this.entries = new Map();  // by output_index
    this.gap = "";             // between the text that is there and the message that began
  }

  // {text, thought, tokens, finish, usage}: what there is of it.
  read(event) {
    switch (event.type) {
      case "response.output_item.added": return this.begin(event);
      case "response.output_item.done": return this.end(event);
      case "response.mcp_call_arguments.delta": return this.argue(event);
      case "response.reasoning_text.delta": return { thought: event.delta };
      case "response.output_text.delta": return this.say(event);
      case "response.failed": throw new ApiError(event.response.error?.code ?? 500, event.response.error?.message ?? "The response failed.");
      case "response.completed":
      case "response.incomplete": return this.finish(event.response);
      default: return {};
    }
  }

  begin({ item, output_index }) {
    const { variant } = this;
    if (item.type === "message" && variant.text !== "") this.gap = "\n\n";
    if (!item.type.startsWith("mcp_")) return {};
    variant.items ??= [];
    variant.items.push({ item, at: variant.text.length, done: false });
    this.entries.set(output_index, variant.items.at(-1));
    return {};
  }

  argue({ delta, output_index }) {
    const entry = this.entries.get(output_index);
    if (entry) entry.item.arguments = (entry.item.arguments ?? "") + delta;
    return {};
  }

  end({ item, output_index }) {
    const entry = this.entries.get(output_index);
    if (entry) Object.assign(entry, { item, done: true });
    return {};
  }

  say({ delta, logprobs }) {
    const { gap } = this;
    if (delta !== "") this.gap = "";
    return { text: delta === "" ? "" : gap + delta, gap, tokens: read_logprobs(logprobs && { content: logprobs }) };
  }

  finish({ usage, incomplete_details }) {
    const finish = { max_output_tokens: "length" }[incomplete_details?.reason] ?? incomplete_details?.reason ?? "stop";
    return { finish, usage: usage && { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens, prompt_tokens_details: usage.input_tokens_details } };
  }
}
