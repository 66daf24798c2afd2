// What the browser keeps: settings and conversations, in localStorage (an API key only when asked to).
//
// A conversation: {id, title, mode: "chat" | "story" | null, updated, messages}. A message of the user: {role: "user", text, images},
// images being its pictures as data URLs, if it has any;
// of the model: {role: "assistant", variants, at}, variants[at] being the one shown: {text, thought, tokens, stats, error,
// items}, the last of which responses.js describes.

const kPrefix = "penstock.";
const kConversation = kPrefix + "conversation.";
const kSettings = kPrefix + "settings";
const kKey = kPrefix + "key";
const kMostConversations = 200;

const kDefaults = {
  model: "", mode: "auto", system: "", params: {}, extra: "", logprobs: true, heat: false,
  remember_key: false, history_open: true, settings_open: false, servers_off: [], current: "",
};

function read(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;  // blocked storage, or not ours
  }
}

function write(storage, key, value) {
  try {
    if (value === null) storage.removeItem(key);
    else storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;  // blocked, or full
  }
}

export const settings = { ...kDefaults, ...read(localStorage, kSettings) };
settings.api_key = read(localStorage, kKey) ?? read(sessionStorage, kKey) ?? "";

export function save_settings() {
  const { api_key, ...rest } = settings;
  write(localStorage, kSettings, rest);
  write(localStorage, kKey, settings.remember_key && api_key ? api_key : null);
  write(sessionStorage, kKey, api_key || null);
}

export function shown_text(message) {
  return message.role === "user" ? message.text : (message.variants[message.at]?.text ?? "");
}

export function new_conversation() {
  return { id: `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`, title: "", mode: null, updated: 0, messages: [] };
}

function is_conversation(value) {
  return value !== null && typeof value === "object" && typeof value.id === "string" && Array.isArray(value.messages) &&
    value.messages.every((m) => (m.role === "user" ? typeof m.text === "string" : Array.isArray(m.variants) && m.at in m.variants));
}

// All of them, the newest first.
export function conversations() {
  const list = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const key = localStorage.key(i);
      if (!key.startsWith(kConversation)) continue;
      const value = read(localStorage, key);
      if (is_conversation(value)) list.push(value);
    }
  } catch {
    return [];
  }
  return list.sort((a, b) => b.updated - a.updated);
}

export function load_conversation(id) {
  const value = read(localStorage, kConversation + id);
  return is_conversation(value) ? value : null;
}

export function delete_conversation(id) {
  write(localStorage, kConversation + id, null);
}

// False when nothing could be kept. A full storage first loses token probabilities and pictures, then the oldest conversations.
export function save_conversation(conversation) {
  if (conversation.messages.length === 0) return true;
  const key = kConversation + conversation.id;
  if (write(localStorage, key, conversation)) {
    for (const old of conversations().slice(kMostConversations)) delete_conversation(old.id);
    return true;
  }
  const others = conversations().filter((one) => one.id !== conversation.id).reverse();
  for (const old of others) {
    for (const message of old.messages) {
      delete message.images;
      for (const variant of message.variants ?? []) variant.tokens = [];
    }
    write(localStorage, kConversation + old.id, old);
  }
  if (write(localStorage, key, conversation)) return true;
  for (const old of others) {
    delete_conversation(old.id);
    if (write(localStorage, key, conversation)) return true;
  }
  return false;
}

export function onchange(callback) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith(kConversation)) callback();
  });
}
