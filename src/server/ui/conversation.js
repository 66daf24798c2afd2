// One conversation and the request that extends it: send, stop, regenerate, edit, continue. Knows no element.
import { stream_json } from "./api.js";
import { open_questions, response_request, ResponseReader } from "./responses.js";
import { picture_parts } from "./pictures.js";
import { request_fields } from "./settings.js";
import { new_conversation, save_conversation, settings, shown_text } from "./store.js";
import { PieceBuilder, read_logprobs } from "./tokens.js";

const kStoryTokens = 256;      // when the field is empty: the API's own default would be 16
const kAlternatives = 5;

// What a chunk of the two older APIs adds to a reply.
function read_chunk({ choices, usage }) {
  const choice = choices?.[0];
  const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
  // The probabilities of thoughts are not shown.
  const tokens = thought === "" ? read_logprobs(choice?.logprobs) : [];
  return { text: choice?.text ?? choice?.delta?.content ?? "", thought, tokens, finish: choice?.finish_reason, usage };
}

export class Conversation {
  // hooks: onstructure() when messages come, go or change as a whole; onprogress() when the running reply grew;
  // ondone(variant) after each reply; mode() tells what a fresh conversation is; servers() names the MCP servers whose tools chats may use.
  constructor(hooks) {
    this.hooks = hooks;
    this.data = new_conversation();
    this.running = null;  // {abort, variant} while a reply is being written
  }

  get messages() { return this.data.messages; }
  get mode() { return this.data.mode ?? this.hooks.mode(); }
  get last() { return this.messages.at(-1); }

  open(data) {
    this.stop();
    this.data = data;
    this.hooks.onstructure();
  }

  // Chat: the user's message, with pictures as data URLs. Story: words added to the text; none just continues it.
  send(text, images = []) {
    if (this.running || (text === "" && images.length === 0 && this.messages.length === 0)) return;
    this.data.mode ??= this.hooks.mode();
    if (this.mode === "story") text = this.joined(text);
    if (text !== "" || images.length > 0) {
      this.messages.push({ role: "user", text, ...(images.length > 0 && { images }) });
      if (this.data.title === "") this.data.title = text.trim().replace(/\s+/g, " ").slice(0, 60) || "Picture";
    }
    this.messages.push({ role: "assistant", variants: [], at: 0 });
    return this.generate();
  }

  // A story's parts are one text: words that are added get the space that lies between them.
  joined(text) {
    const before = this.story();
    return before === "" || text === "" || /\s$/.test(before) || /^[\s.,;:!?)'"]/.test(text) ? text : ` ${text}`;
  }

  story() {
    return this.messages.map(shown_text).join("");
  }

  stop() {
    this.running?.abort.abort();
  }

  regenerate() {
    if (!this.running && this.last?.role === "assistant") return this.generate();
  }

  choose_variant(message, at) {
    if (this.running || !(at in message.variants)) return;
    message.at = at;
    this.keep();
    this.hooks.onstructure();
  }

  // What the user says to a call that the reply asks about; with the last answer the reply goes on.
  answer(entry, approve) {
    if (this.running) return;
    entry.answer = approve;
    const variant = this.last.variants[this.last.at];
    if (open_questions(variant).length === 0) return this.run(variant);
    this.keep();
    this.hooks.onstructure();
  }

  // A changed message of the user starts over from there; one of the model is just changed.
  edit(message, text) {
    if (this.running) return;
    if (message.role === "assistant") {
      message.variants[message.at] = { ...message.variants[message.at], text, tokens: [], error: null };
      this.keep();
      return this.hooks.onstructure();
    }
    this.messages.splice(this.messages.indexOf(message));
    return this.send(text, message.images);
  }

  replace_story(text) {
    if (this.running) return;
    this.data.messages = text === "" ? [] : [{ role: "user", text }];
    this.keep();
    this.hooks.onstructure();
  }

  // Takes back the last part, and gives its text when it was the user's.
  undo() {
    if (this.running) return "";
    const removed = this.messages.pop();
    this.keep();
    this.hooks.onstructure();
    return removed?.role === "user" ? removed.text : "";
  }

  keep() {
    this.data.updated = Date.now();
    this.kept = save_conversation(this.data);
  }

  request() {
    const shared = { model: settings.model, stream_options: { include_usage: true } };
    const earlier = this.messages.slice(0, -1);
    if (this.mode === "story") {
      // A space at the end would be a token of its own, which few texts continue well.
      const prompt = earlier.map(shown_text).join("").replace(/ +$/, "");
      const logprobs = settings.logprobs ? { logprobs: kAlternatives } : {};
      return ["v1/completions", { ...shared, prompt, max_tokens: kStoryTokens, ...logprobs, ...request_fields() }];
    }
    const servers = this.hooks.servers();
    if (servers.length > 0) {
      const alternatives = settings.logprobs ? kAlternatives : 0;
      const { model, system } = settings;
      return ["v1/responses", response_request({ model, system, servers, alternatives, messages: this.messages, fields: request_fields() })];
    }
    const content = (one) => (one.images ? picture_parts(one.images, one.text) : shown_text(one));
    const messages = earlier.map((one) => ({ role: one.role, content: content(one) })).filter((one) => one.content !== "");
    if (settings.system.trim() !== "") messages.unshift({ role: "system", content: settings.system });
    const logprobs = settings.logprobs ? { logprobs: true, top_logprobs: kAlternatives } : {};
    return ["v1/chat/completions", { ...shared, messages, ...logprobs, ...request_fields() }];
  }

  generate() {
    const message = this.last;
    const variant = { text: "", tokens: [], stats: null, error: null };
    // A reply that failed before its first word is not worth keeping beside the next one.
    message.variants = message.variants.filter((one) => !(one.error && one.text === "" && !one.items?.length));
    message.at = message.variants.push(variant) - 1;
    return this.run(variant);
  }

  // Adds to the reply what the model writes.
  async run(variant) {
    variant.error = null;
    const abort = new AbortController();
    this.running = { abort, variant };
    this.keep();
    this.hooks.onstructure();
    const clock = { start: performance.now(), first: 0, last: 0 };
    let usage = null, finish = "stopped";
    try {
      const pieces = new PieceBuilder(variant.tokens);
      const reader = new ResponseReader(variant);
      for await (const event of stream_json(...this.request(), abort.signal)) {
        const part = event.type ? reader.read(event) : read_chunk(event);
        usage = part.usage ?? usage;
        finish = part.finish ?? finish;
        const n_pieces = variant.tokens.length;
        for (const token of part.tokens ?? []) pieces.add(token);
        if (part.gap && variant.tokens[n_pieces]) variant.tokens[n_pieces].t = part.gap + variant.tokens[n_pieces].t;
        if (part.thought) variant.thought = (variant.thought ?? "") + part.thought;
        variant.text += part.text ?? "";
        clock.last = performance.now();
        clock.first ||= part.text || part.thought ? clock.last : 0;
        this.hooks.onprogress();
      }
    } catch (error) {
      if (error.name !== "AbortError") {
        variant.error = { status: error.status ?? 0, message: error.message };
        finish = "error";
      }
    }
    variant.stats = this.stats(clock, usage, finish, variant);
    this.running = null;
    this.keep();
    this.hooks.ondone(variant);
    this.hooks.onstructure();
  }

  stats(clock, usage, finish, variant) {
    const n_tokens = usage?.completion_tokens ?? variant.tokens.length;
    const seconds = (clock.last - clock.first) / 1000;
    return {
      n_tokens, finish,
      context: usage ? usage.prompt_tokens + usage.completion_tokens : null,
      prompt: usage?.prompt_tokens, miss: usage?.prompt_tokens_details?.cache_miss ?? null,
      first_ms: clock.first > 0 ? clock.first - clock.start : null,
      rate: clock.first > 0 && seconds > 0 && n_tokens > 1 ? (n_tokens - 1) / seconds : null,
    };
  }
}
