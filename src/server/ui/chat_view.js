// Shows a conversation: as messages, or as one story that the user and the model write together.
import { $, announce, copy_text, element, icon, icon_button } from "./dom.js";
import { render_markdown } from "./markdown.js";
import { thumbnail } from "./pictures.js";
import { kScenes, scene_url } from "./scenes.js";
import { settings, shown_text } from "./store.js";
import { show_tool_items } from "./tool_items.js";
import { PieceMap } from "./tokens.js";

const kWelcomes = {
  story: {
    title: "How does the story begin?",
    text: "This model continues text. Write the beginning; then take turns with it, sentence by sentence.",
    examples: ["Once upon a time, there was a little boat who was afraid of the sea.",
      "Lily found a tiny door behind the big tree. She knocked, and",
      "The old clock had not made a sound for years. But one night",
      "Tom and his dog went to the park. There they saw",
      "One rainy day, a small bird came to the window and said",
      "There was a girl who could talk to the stars. Every evening"],
  },
  base: {
    title: "What should the model continue?",
    text: "This is a base model: it answers no questions, it goes on with a text. Write one whose next words are what you look for.",
    examples: ["A water turbine works in three steps. First,",
      "The capital of France is Paris. The capital of Japan is",
      "def fibonacci(n):\n    \"\"\"The n-th Fibonacci number.\"\"\"\n",
      "English: Good morning. French: Bonjour. English: Thank you. French:",
      "Dear Ms. Weber,\n\nthank you for your letter of last week.",
      "Recipe for pancakes\n\nIngredients:\n-"],
  },
  scenes: {
    title: "What is in the picture?",
    text: "This small model sees shapes, colours, places and signs. Take a picture here, or draw one and drop it.",
    examples: kScenes,
  },
  chat: {
    title: "What would you like to know?",
    text: "Replies come from the model on this server. Nothing you write leaves it.",
    examples: ["Explain how a turbine turns falling water into light.",
      "Write a haiku about a river in spring.", "What should I look at when I buy a used bicycle?",
      "Turn this into a polite e-mail: the heating is broken again, come today.",
      "Write a Python function that merges two sorted lists.",
      "Give me three names for a small bakery by the sea."],
  },
};
// Only a model's name says whether it was made for stories or for drawn scenes.
const is_scenes = (model) => /penstock-scenes/i.test(model);
function welcome_of(mode, model) {
  if (mode === "chat") return kWelcomes[is_scenes(model) ? "scenes" : "chat"];
  return kWelcomes[/stor(y|ies)/i.test(model) ? "story" : "base"];
}
const kFinishes = { length: "length limit", max_tool_calls: "limit of tool calls", max_tool_time: "time for tools is up", stopped: "stopped", error: "failed", abort: "ended by the server" };

function stats_text(stats) {
  if (!stats) return "";
  const parts = [];
  if (stats.n_tokens > 0) parts.push(`${stats.n_tokens} token${stats.n_tokens === 1 ? "" : "s"}`);
  if (stats.rate) parts.push(`${stats.rate < 10 ? stats.rate.toFixed(1) : Math.round(stats.rate)} per second`);
  if (stats.first_ms !== null) parts.push(`first after ${stats.first_ms < 1000 ? `${Math.round(stats.first_ms)} ms` : `${(stats.first_ms / 1000).toFixed(1)} s`}`);
  if (kFinishes[stats.finish]) parts.push(kFinishes[stats.finish]);
  return parts.join(" · ");
}

const kMisses = {
  new: "nothing like it was asked before", longer: "the rest is new", not_kept: "the rest was known, but is not in the cache any more",
};

// Where the prompt of a reply was taken from, and where it left what was known (cache_miss).
function miss_text({ prompt, miss }) {
  const { memory, store, computed } = miss.tiers;
  const parts = [`Prompt of ${prompt} tokens: ${memory.tokens} from memory`];
  if (store.tokens > 0) parts.push(`${store.tokens} from the store in ${store.ms.toFixed(1)} ms`);
  parts.push(`${computed.tokens} computed in ${computed.ms.toFixed(1)} ms`);
  const where = `token ${miss.token}${miss.message === undefined ? "" : `, in message ${miss.message} (${miss.role})`}`;
  if (miss.reason === "differs") parts.push(`differs from ${where}, on: “${miss.has}” was “${miss.had}”`);
  else if (kMisses[miss.reason]) parts.push(`from ${miss.reason === "not_kept" ? `token ${prompt - computed.tokens}` : where} on: ${kMisses[miss.reason]}`);
  return `${parts.join("; ")}.`;
}

export class ChatView {
  constructor(conversation) {
    this.conversation = conversation;
    this.log = $("log");
    this.stick = true;       // follow the text as it grows
    this.frame = 0;
    this.log.addEventListener("scroll", () => {
      this.stick = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
      this.show_jump();
    }, { passive: true });
    $("jump-button").addEventListener("click", () => {
      this.stick = true;
      this.follow();
    });
    new ResizeObserver(() => this.follow()).observe(this.log);
  }

  follow() {
    if (this.stick) this.log.scrollTop = this.log.scrollHeight;
    this.show_jump();
  }
  show_jump() {
    $("jump-button").hidden = this.stick || this.conversation.messages.length === 0;
  }

  // Everything anew; cheap enough for what happens once per action.
  render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { messages, mode, running } = this.conversation;
    this.log.setAttribute("aria-busy", running !== null);
    this.live = null;
    if (messages.length === 0) this.log.replaceChildren(this.welcome(mode));
    else if (mode === "story") this.log.replaceChildren(...this.story());
    else this.log.replaceChildren(...messages.map((message) => this.message(message)));
    this.follow();
  }

  // The running reply grew.
  progress() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.live?.();
      this.follow();
    });
  }

  welcome(mode) {
    const { title, examples, ...words } = welcome_of(mode, settings.model);
    const servers = mode === "chat" ? this.conversation.hooks.servers() : [];
    const text = servers.length === 0 ? words.text : `Replies come from the model on this server, which may use tools of ${servers.join(", ")}.`;
    return element("div", { class: "welcome" }, element("h1", {}, title), element("p", {}, text),
      element("ul", { class: "examples" }, ...examples.map((one) => element("li", {}, this.example(one)))));
  }

  // A text, or a scene with a question about it.
  example(one) {
    if (typeof one === "string") return element("button", { type: "button", onclick: () => this.conversation.send(one) }, one);
    const url = scene_url(one);
    return element("button", { type: "button", class: "scene", onclick: () => this.conversation.send(one.question, [url]) },
      element("img", { src: url, alt: "", class: "thumbnail" }), one.question);
  }

  // --- Chat ---

  message(message) {
    const { running } = this.conversation;
    const last = message === this.conversation.last;
    const body = element("div", { class: "body" });
    const node = element("article", {
      class: `message ${message.role}${last ? " last" : ""}`, "data-message": true,
      "aria-label": message.role === "user" ? "You" : "Model",
    }, body);
    if (message.role === "user") {
      body.textContent = message.text;
      body.hidden = message.text === "";
      if (message.images) body.before(element("div", { class: "shown-pictures" }, ...message.images.map(thumbnail)));
    } else {
      body.dataset.tokens = "";
      const variant = message.variants[message.at];
      const update = () => {
        this.show_thought(variant, node, body);
        this.show_items(variant, node, body, last);
        const map = new PieceMap(variant.text, variant.tokens);
        render_markdown(body, variant.text, (start, end, parent) => map.emit(start, end, parent));
      };
      if (variant) update();
      if (last && running) {
        body.classList.add("working");
        this.live = update;
        return node;
      }
      if (variant?.error) node.append(this.failure(variant.error));
    }
    node.append(this.foot(message, node, body));
    return node;
  }

  // What the model thought before it answered: open while there is no answer yet, then folded.
  show_thought(variant, node, body) {
    if (!variant.thought) return;
    let details = node.querySelector(".thought");
    if (!details) {
      details = element("details", { class: "thought", open: variant.text === "" }, element("summary", {}, "Thoughts"), element("p"));
      body.before(details);
    }
    if (variant.text !== "" && !details.dataset.answered) {
      details.dataset.answered = "";
      details.open = false;
    }
    details.lastChild.textContent = variant.thought.trim();
  }

  // Only the last reply's questions can be answered, when it has ended.
  show_items(variant, node, body, last) {
    if (!variant.items?.length) return;
    let list = node.querySelector(".tool-items");
    if (!list) {
      list = element("div", { class: "tool-items" });
      body.before(list);
    }
    const { conversation } = this, running = last && conversation.running !== null;
    show_tool_items(list, variant.items, running, last && !running ? (entry, approve) => conversation.answer(entry, approve) : null);
  }

  foot(message, node, body) {
    const foot = element("div", { class: "foot" });
    const copy = icon_button("copy", "Copy", () => copy_text(shown_text(message), copy));
    const edit = icon_button("edit", "Edit", () => this.edit_message(message, node));
    foot.append(copy, edit);
    if (message.role === "assistant") {
      if (message === this.conversation.last) foot.append(icon_button("again", "Regenerate", () => this.conversation.regenerate()));
      this.reply_details(message, foot, body);
    }
    if (this.conversation.running) for (const button of foot.querySelectorAll("button")) if (button !== copy) button.disabled = true;
    return foot;
  }

  // Tokens, versions and numbers of a reply.
  reply_details(message, foot, body) {
    const variant = message.variants[message.at];
    if (variant?.tokens.length > 0) {
      const inspect = icon_button("tokens", "Inspect tokens (arrow keys move)", () => body.querySelector(".tok")?.focus());
      inspect.dataset.inspect = "";
      foot.append(inspect);
    }
    if (message.variants.length > 1) {
      const step = (by) => this.conversation.choose_variant(message, message.at + by);
      foot.append(element("span", { class: "variants" }, icon_button("left", "Previous version", () => step(-1)),
        `${message.at + 1} / ${message.variants.length}`, icon_button("right", "Next version", () => step(1))));
    }
    if (variant?.stats?.miss) {
      const cache = element("details", { class: "miss" }, element("summary", {}, "cache"), miss_text(variant.stats));
      foot.append(cache);
    }
    foot.append(element("span", { class: "stats" }, stats_text(variant?.stats)));
  }

  failure(error) {
    return element("div", { class: "failure", role: "alert" }, error.message);
  }

  edit_message(message, node) {
    const save = (text) => (message.role === "user" && text.trim() === "" && !message.images ? this.render() : this.conversation.edit(message, text));
    this.edit(node, shown_text(message), message.role === "user" ? "Send" : "Save", save);
  }

  edit(node, text, action, save) {
    const area = element("textarea", { "aria-label": "Edit the text" });
    area.value = text;
    const done = () => save(area.value);
    const cancel = () => {
      this.render();
      $("prompt").focus();
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        done();
      }
    });
    node.replaceChildren(element("div", { class: "editor" }, area, element("div", {},
      element("button", { type: "button", onclick: cancel }, "Cancel"),
      element("button", { type: "button", class: "main-button", onclick: done }, action))));
    area.focus();
    area.setSelectionRange(text.length, text.length);
  }

  // --- Story ---

  story() {
    const { messages, running, last } = this.conversation;
    const text = element("article", { class: "story", "data-message": true, "data-tokens": true, "aria-label": "Story" });
    const parts = [text];
    for (const message of messages) {
      const part = element("span", { class: message.role === "user" ? "mine" : "theirs" });
      text.append(part);
      if (message.role === "user") part.textContent = message.text;
      else this.story_part(message, part, running !== null && message === last);
    }
    const variant = last.role === "assistant" ? last.variants[last.at] : null;
    if (variant?.error && !running) parts.push(this.failure(variant.error));
    if (!running) parts.push(this.story_foot(text));
    return parts;
  }

  // A growing part only ever gets more text, so that what is there stays.
  story_part(message, part, live) {
    const variant = message.variants[message.at];
    let shown = 0;
    const update = () => {
      new PieceMap(variant.text, variant.tokens).emit(shown, variant.text.length, part);
      shown = variant.text.length;
    };
    if (variant) update();
    part.classList.toggle("working", live);
    if (live) this.live = update;
  }

  story_foot(text) {
    const { conversation } = this;
    const foot = element("div", { class: "foot", "data-message": true });
    const action = (name, label, onclick) => element("button", { type: "button", class: "text-button", onclick }, icon(name), label);
    const copy = icon_button("copy", "Copy the story", () => copy_text(conversation.story(), copy));
    foot.append(action("right", "Continue", () => conversation.send("")));
    if (conversation.last.role === "assistant") foot.append(action("again", "Regenerate", () => conversation.regenerate()));
    foot.append(icon_button("undo", "Take back the last part", () => {
      const own = conversation.undo();
      if (own !== "") $("prompt").value = own.trimStart();
      $("prompt").dispatchEvent(new Event("input"));
      $("prompt").focus();
    }));
    foot.append(icon_button("edit", "Edit the story", () => {
      foot.remove();
      this.edit(text, conversation.story(), "Save", (changed) => conversation.replace_story(changed));
    }), copy);
    if (conversation.last.role === "assistant") this.reply_details(conversation.last, foot, text);
    return foot;
  }

  done(variant) {
    announce(variant.error ? "" : `Reply complete, ${variant.stats.n_tokens} tokens`);
  }
}
