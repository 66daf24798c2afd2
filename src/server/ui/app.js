// The page: navigation, panels, the composer, and what is known about the server.
import { get_json } from "./api.js";
import { ChatView } from "./chat_view.js";
import { Conversation } from "./conversation.js";
import { Dashboard } from "./dashboard.js";
import { $, announce, element, icon_button, set_icon } from "./dom.js";
import { build_settings, show_models, show_servers } from "./settings.js";
import { conversations, delete_conversation, load_conversation, new_conversation, onchange, save_settings, settings } from "./store.js";
import { Lists } from "./lists.js";
import { Pictures } from "./pictures.js";
import { hide_tooltip, watch_tokens } from "./tokens.js";

const kBase = new URL("../", import.meta.url);
const kRetryMs = 3000;
const wide = matchMedia("(min-width: 900px)");

const server = { models: [], mcp_servers: [], has_template: false };
const conversation = new Conversation({ mode: fresh_mode, servers: servers_in_use, onstructure, onprogress: () => view.progress(), ondone });
const view = new ChatView(conversation);
const dashboard = new Dashboard(onpoll);
const pictures = new Pictures({ onchange: show_send, onproblem: notice });
const lists = new Lists(() => dashboard.readings.at(-1));

// --- The server ---

function fresh_mode() {
  if (settings.mode !== "auto") return settings.mode;
  return server.has_template ? "chat" : "story";
}

function servers_in_use() {
  return server.mcp_servers.filter((name) => !settings.servers_off.includes(name));
}

function show_state(state, text) {
  $("server-pill").dataset.state = state;
  $("server-text").textContent = text;
  $("server-pill").title = `${text}: open the settings`;
  $("server-pill").setAttribute("aria-label", `Server: ${text}. Open the settings`);
}

// Chat: the model that is talked to. Dashboard: what it is about.
function show_running() {
  const n_models = server.models.length;
  const many = page_of_address() === "dashboard" && n_models > 1;
  if (n_models > 0) show_state(conversation.running ? "busy" : "ready", many ? `${n_models} models` : settings.model);
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = text === "";
}

let retry = 0;
async function connect() {
  clearTimeout(retry);
  try {
    await read_models();
    server.mcp_servers = (await get_json("v1/mcp_servers")).data.map((one) => one.id);
    show_servers(server.mcp_servers);
    notice("");
    dashboard.resume();
    lists.schedule(0);
    await read_template();
    show_running();
    onstructure();
  } catch (error) {
    server.models = [];
    if (error.status === 401 || error.status === 403) return ask_for_key(error.message);
    show_state("gone", "unreachable");
    notice(error.message);
    retry = setTimeout(connect, kRetryMs);
  }
}

async function read_models() {
  server.models = (await get_json("v1/models")).data;
  show_models(server.models);
}

// Of the model that is chosen, which is loaded for it if it is not.
async function read_template() {
  const asked = settings.model;
  const loaded = server.models.find((one) => one.id === asked)?.state === "loaded";
  if (!loaded) show_state("busy", `loading ${asked}`);
  let template = null, problem = "";
  try {
    template = (await get_json(`tokenizer_info?model=${encodeURIComponent(asked)}`)).chat_template;
  } catch (error) {
    problem = error.message;
  }
  if (settings.model !== asked) return;  // somebody chose another one meanwhile
  server.has_template = Boolean(template);
  if (loaded) return;
  notice(problem);
  await read_models().catch(() => {});
}

async function choose_model() {
  notice("");
  onstructure();
  await read_template();
  show_running();
  onstructure();
}

function ask_for_key(message) {
  show_state("key", "needs an API key");
  notice(`This server needs an API key (${message}).`);
  open_panel("settings");
  $("api-key").focus();
}

function onpoll(error) {
  if (!error && $("server-pill").dataset.state === "gone") connect();
  if (error?.status === 0) show_state("gone", "unreachable");
}

// --- Pages ---

function show_page(page) {
  const charts = page === "dashboard";
  $("chat-page").hidden = charts;
  $("dashboard-page").hidden = !charts;
  for (const button of [$("history-button"), $("settings-button")]) button.hidden = charts;
  for (const tab of ["chat", "dashboard"]) {
    if (tab === page) $(`${tab}-tab`).setAttribute("aria-current", "page");
    else $(`${tab}-tab`).removeAttribute("aria-current");
  }
  document.title = charts ? "Dashboard · Penstock" : "Penstock";
  hide_tooltip();
  dashboard.show(charts);
  lists.show(charts);
  if (["ready", "busy"].includes($("server-pill").dataset.state)) show_running();
  if (!charts) view.follow();
}

const page_of_address = () => (location.pathname.endsWith("/dashboard") ? "dashboard" : "chat");

for (const link of document.querySelectorAll("a[data-page]")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    const page = link.dataset.page;
    if (page !== page_of_address()) history.pushState(null, "", new URL(page === "dashboard" ? "dashboard" : "./", kBase));
    show_page(page);
  });
}
addEventListener("popstate", () => show_page(page_of_address()));

// --- Panels: columns when there is room (and then remembered), drawers otherwise ---

function show_panel(name, open) {
  $(name).hidden = !open;
  $(`${name}-button`).setAttribute("aria-expanded", open);
  $("backdrop").hidden = wide.matches || ($("history").hidden && $("settings").hidden);
  for (const part of [$("main"), document.querySelector(".bar")]) part.inert = !$("backdrop").hidden;
  if (wide.matches) {
    settings[`${name}_open`] = open;
    save_settings();
  }
}

function open_panel(name) {
  if ($("chat-page").hidden) show_page("chat");
  if (!wide.matches) show_panel(name === "history" ? "settings" : "history", false);
  show_panel(name, true);
  if (!wide.matches) $(name).querySelector("button, select")?.focus();
}

function close_panel(name) {
  const inside = $(name).contains(document.activeElement);
  show_panel(name, false);
  if (inside) $(`${name}-button`).focus();
}

function close_drawers() {
  for (const name of ["history", "settings"]) if (!$(name).hidden) close_panel(name);
}

for (const name of ["history", "settings"]) {
  $(`${name}-button`).addEventListener("click", () => ($(name).hidden ? open_panel(name) : close_panel(name)));
}
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => close_panel(button.dataset.close));
$("backdrop").addEventListener("click", close_drawers);
$("server-pill").addEventListener("click", () => open_panel("settings"));

function arrange() {
  show_panel("history", wide.matches && settings.history_open);
  show_panel("settings", wide.matches && settings.settings_open);
}
wide.addEventListener("change", arrange);

// --- Theme ---

const kThemes = { "": ["auto", "automatic"], light: ["light", "light"], dark: ["dark", "dark"] };

function show_theme() {
  const [name, word] = kThemes[document.documentElement.dataset.theme ?? ""];
  set_icon($("theme-button"), name);
  $("theme-button").setAttribute("aria-label", `Theme: ${word}`);
  $("theme-button").title = `Theme: ${word}`;
}

$("theme-button").addEventListener("click", () => {
  const order = Object.keys(kThemes), root = document.documentElement;
  const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem("penstock.theme", next);
    else localStorage.removeItem("penstock.theme");
  } catch {
    // Not kept, then.
  }
  show_theme();
});

// --- The conversation ---

function ago(time) {
  const minutes = (Date.now() - time) / 60000;
  if (minutes < 1) return "now";
  if (minutes < 60) return `${Math.floor(minutes)} min ago`;
  return new Date(time).toLocaleString([], minutes < 1440 ? { timeStyle: "short" } : { dateStyle: "medium" });
}

function show_history() {
  const items = conversations().map((one) => {
    const title = one.title || "Untitled";
    const remove = icon_button("trash", `Delete “${title}”`, () => {
      delete_conversation(one.id);
      if (one.id === conversation.data.id) start_conversation();
      show_history();
      $("new-button").focus();
    });
    const open = element("button", { type: "button", class: "history-item", onclick: () => open_conversation(one.id) },
      element("b", {}, title), element("small", {}, `${one.mode === "story" ? "Story" : "Chat"} · ${ago(one.updated)}`));
    const current = one.id === conversation.data.id;
    if (current) open.setAttribute("aria-current", "true");
    return element("li", { "data-current": current }, open, remove);
  });
  $("history-list").replaceChildren(...(items.length > 0 ? items : [element("li", { class: "empty" }, "Nothing here yet.")]));
}

function open_conversation(id) {
  const data = load_conversation(id);
  if (data) conversation.open(data);
  if (!wide.matches) close_drawers();
  $("prompt").focus();
}

function start_conversation() {
  conversation.open(new_conversation());
  if (!wide.matches) close_drawers();
  $("prompt").focus();
}

function onstructure() {
  hide_tooltip();
  view.render();
  const running = conversation.running !== null, story = conversation.mode === "story";
  $("send-button").hidden = running;
  $("stop-button").hidden = !running;
  $("prompt").placeholder = !story ? "Message" : conversation.messages.length === 0 ? "Write the beginning" : "Add words, or send nothing to go on";
  $("prompt-label").textContent = story ? "Story text" : "Message";
  $("system-row").hidden = story;
  pictures.allow(!story && Boolean(server.models.find((one) => one.id === settings.model)?.input_modalities?.includes("image")));
  settings.current = conversation.data.id;
  save_settings();
  show_running();
  show_send();
  show_context();
  show_history();
}

function show_send() {
  const may_continue = conversation.mode === "story" && conversation.messages.length > 0;
  $("send-button").disabled = $("prompt").value.trim() === "" && pictures.urls.length === 0 && !may_continue;
}

// How much of the context the last request filled.
function show_context() {
  const limit = server.models.find((one) => one.id === settings.model)?.max_model_len;
  const last = conversation.last;
  const used = last?.role === "assistant" ? last.variants[last.at]?.stats?.context : null;
  $("context-use").textContent = used && limit ? `${used} of ${limit} tokens of context` : "";
  $("context-use").toggleAttribute("data-full", Boolean(used && limit && used >= limit));
}

function ondone(variant) {
  view.done(variant);
  if (variant.error?.status === 401 || variant.error?.status === 403) ask_for_key(variant.error.message);
  if (!conversation.kept) notice("The browser's storage is full or blocked: this conversation is not kept.");
}

function send() {
  const text = $("prompt").value;
  if (conversation.running || $("send-button").disabled) return;
  $("prompt").value = "";
  fit_prompt();
  view.stick = true;
  conversation.send(text.trim() === "" ? "" : text, pictures.give());
}

// For browsers without field-sizing.
function fit_prompt() {
  if (CSS.supports("field-sizing", "content")) return;
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${$("prompt").scrollHeight}px`;
}

function stop() {
  conversation.stop();
  announce("Stopped");
  $("prompt").focus();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("input", () => {
  fit_prompt();
  show_send();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && $("prompt").value === "") {
    const edits = view.log.querySelectorAll('[aria-label="Edit"], [aria-label="Edit the story"]');
    const own = [...edits].filter((button) => !button.closest(".message.assistant")).at(-1);
    if (own) event.preventDefault();
    own?.click();
  }
});
$("stop-button").addEventListener("click", stop);
$("new-button").addEventListener("click", start_conversation);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (!$("backdrop").hidden) close_drawers();
    else if (conversation.running) stop();
    hide_tooltip();
  } else if (event.key === "/" && !event.target.closest("input, textarea, select") && !$("chat-page").hidden) {
    event.preventDefault();
    $("prompt").focus();
  } else if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    show_page("chat");
    start_conversation();
  }
});
addEventListener("pagehide", () => conversation.running && conversation.keep());

// --- Start ---

function show_display() {
  document.documentElement.classList.toggle("heat", settings.heat);
}

$("model").addEventListener("focus", () => server.models.length > 0 && read_models().catch(() => {}));
build_settings({ onmodel: choose_model, onkey: connect, onmode: onstructure, ondisplay: show_display });
watch_tokens($("log"));
onchange(show_history);
show_theme();
show_display();
arrange();
const kept = load_conversation(settings.current);
if (kept) conversation.data = kept;
onstructure();
show_page(page_of_address());
connect();
if (wide.matches && page_of_address() === "chat") $("prompt").focus();
