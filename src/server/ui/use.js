// What API keys have used this month, as far as this page's key may see it. Read while the dashboard is shown.
import { get_json } from "./api.js";
import { $, element } from "./dom.js";

const kPollMs = 10000;
const kColumns = [
  ["Key", (row) => row.key || "–"], ["Model", (row) => row.model], ["Requests", (row) => count(row.requests)],
  ["Input", (row) => count(row.input_tokens)], ["Cached", (row) => count(row.cached_tokens)],
  ["Output", (row) => count(row.output_tokens)], ["Seconds", (row) => row.seconds.toFixed(1)], ["Cost", (row) => row.cost.toFixed(4)],
];

const count = (n) => n.toLocaleString("en");

// One row for each key and model, of all days together; the largest first.
export function by_key_and_model(rows) {
  const sums = new Map();
  for (const row of rows) {
    const name = JSON.stringify([row.key, row.model]);
    const sum = sums.get(name) ?? { key: row.key, model: row.model, requests: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, seconds: 0, cost: 0 };
    for (const field of ["requests", "input_tokens", "cached_tokens", "output_tokens", "seconds", "cost"]) sum[field] += row[field];
    sums.set(name, sum);
  }
  return [...sums.values()].sort((a, b) => b.input_tokens + b.output_tokens - a.input_tokens - a.output_tokens);
}

const cells = (texts, kind) => element("tr", {}, ...texts.map((text) => element(kind, {}, text)));

function budget_text({ name, limit, used, resets_at }) {
  const what = name.replaceAll("_", " ");
  return `Budget: ${count(used)} of ${count(limit)} ${what}, renewed ${new Date(resets_at * 1000).toISOString().slice(0, 10)} (UTC).`;
}

export class UseTable {
  constructor() {
    this.shown = false;
    document.addEventListener("visibilitychange", () => this.schedule(0));
  }

  show(shown) {
    this.shown = shown;
    this.schedule(0);
  }

  schedule(delay) {
    clearTimeout(this.timer);
    if (this.shown && !document.hidden) this.timer = setTimeout(() => this.poll(), delay);
  }

  async poll() {
    try {
      this.draw(await get_json("v1/usage"));
    } catch {
      $("use").hidden = true;  // the dashboard itself says what is wrong with the server or the key
    }
    this.schedule(kPollMs);
  }

  draw({ data, total, budgets, start, kept }) {
    const rows = by_key_and_model(data);
    $("use").hidden = rows.length === 0;
    $("use-since").textContent = kept ? `since ${start}` : "since the server's start";
    const body = rows.map((row) => cells(kColumns.map(([, text]) => text(row)), "td"));
    const sum = cells(kColumns.map(([, text]) => text({ ...total, key: "all", model: "" })), "td");
    $("use-table").replaceChildren(element("thead", {}, cells(kColumns.map(([label]) => label), "th")),
                                   element("tbody", {}, ...body), element("tfoot", {}, sum));
    $("use-budgets").textContent = budgets.map(budget_text).join(" ");
  }
}
