// Shows what a reply says of tools: lists, calls with what came of them, and questions whether a call may be made.
import { element } from "./dom.js";

const kStates = { completed: "done", failed: "failed", incomplete: "cut off" };

// Arguments are JSON, if the model wrote them well.
function laid_out(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const part = (label, text, name = "") => (text ? [element("h4", {}, label), element("pre", { tabindex: "0", class: name }, text)] : []);

function folded(entry, state, title, note, ...parts) {
  return element("details", { class: "tool-item", "data-type": entry.item.type, "data-state": state },
    element("summary", {}, title, element("small", {}, note)), ...parts);
}

function list_of_tools(entry) {
  const { server_label, tools = [], error } = entry.item;
  const state = error ? "failed" : entry.done ? "completed" : "in_progress";
  const note = error ? "failed" : entry.done ? `${tools.length} tool${tools.length === 1 ? "" : "s"}` : "asked for its tools";
  const rows = tools.map((tool) => element("li", {}, element("code", {}, tool.name), tool.description ? ` ${tool.description}` : ""));
  const problem = typeof error === "string" ? error : error?.message ?? JSON.stringify(error);
  return folded(entry, state, server_label, note, ...(error ? part("Error", problem, "problem") : [element("ul", {}, ...rows)]));
}

function call(entry, running) {
  const { server_label, name, status, output, error } = entry.item;
  const state = error ? "failed" : entry.done ? status ?? "completed" : running ? "in_progress" : "incomplete";
  return folded(entry, state, `${name} of ${server_label}`, kStates[state] ?? "under way",
    ...part("Arguments", laid_out(entry.item.arguments)), ...part("Error", error, "problem"), ...part("Output", output));
}

function question(entry, onanswer) {
  const { server_label, name } = entry.item;
  const said = entry.answer === undefined ? (entry.done ? "not answered" : "") : entry.answer ? "approved" : "denied";
  const answer = (label, approve, kind) => element("button", { type: "button", class: kind, onclick: () => onanswer(entry, approve) }, label);
  const buttons = onanswer && entry.answer === undefined && entry.done
    ? element("div", { class: "answers" }, answer("Deny", false, "wide-button"), answer("Approve", true, "wide-button main-button"))
    : element("p", { class: "answered" }, said);
  return element("section", { class: "tool-item question", "data-type": entry.item.type, "aria-label": `May ${name} of ${server_label} be called?` },
    element("h3", {}, `May ${name} of ${server_label} be called?`), ...part("Arguments", laid_out(entry.item.arguments)), buttons);
}

function node_of(entry, running, onanswer) {
  if (entry.item.type === "mcp_list_tools") return list_of_tools(entry);
  return entry.item.type === "mcp_approval_request" ? question(entry, onanswer) : call(entry, running);
}

// Brings `parent` up to date with the items. What did not change keeps its element, and what was unfolded stays so.
// onanswer(entry, approve): null when nobody may answer.
export function show_tool_items(parent, items, running, onanswer) {
  items.forEach((entry, i) => {
    const { item, done, answer } = entry;
    const key = JSON.stringify([item.id, item.arguments?.length, done, answer, running, onanswer !== null]);
    const old = parent.children[i];
    if (old?.key === key) return;
    const node = node_of(entry, running, onanswer);
    node.key = key;
    if (old?.open) node.open = true;
    if (old) old.replaceWith(node);
    else parent.append(node);
  });
}
