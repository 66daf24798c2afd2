// What the dashboard lists below its charts: the models of the server, its caches and routes, and the batches of the key in use.
import { get_json, post } from "./api.js";
import { format_number } from "./chart.js";
import { $, announce, element } from "./dom.js";

const kEveryMs = 2000;
const kMostBatches = 20;
const kUnderWay = ["validating", "in_progress"];

const words = (state) => state.replaceAll("_", " ");

function model_row(model) {
  const context = model.max_model_len ? `${model.max_model_len} tokens` : "–";
  const kind = model.parent ? `adapter of ${model.parent}` : { generate: "text", pooling: "vectors" }[model.runner] ?? "–";
  return element("tr", {},
    element("th", { scope: "row" }, model.id),
    element("td", {}, element("span", { class: "state", "data-state": model.state, title: model.error }, words(model.state))),
    element("td", {}, kind), element("td", {}, context));
}

function batch_row(batch, oncancel) {
  const { total, completed, failed } = batch.request_counts;
  const done = completed + failed, name = `${batch.endpoint}, ${new Date(1000 * batch.created_at).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}`;
  const bar = element("progress", { max: Math.max(total, 1), value: done, "aria-label": `Progress of ${batch.id}` });
  const cancel = kUnderWay.includes(batch.status)
    ? element("button", { type: "button", class: "wide-button small", onclick: () => oncancel(batch.id), "aria-label": `Cancel ${batch.id}` }, "Cancel") : null;
  return element("tr", { "data-id": batch.id },
    element("th", { scope: "row" }, name, element("small", {}, batch.id)),
    element("td", {}, element("span", { class: "state", "data-state": batch.status }, words(batch.status))),
    element("td", {}, bar), element("td", {}, `${done} of ${total}${failed > 0 ? `, ${failed} failed` : ""}`),
    element("td", {}, cancel));
}

// What a cache was asked for and what it had, since the start.
function cache_row(name, unit, asked, found) {
  const share = asked > 0 ? `${format_number((100 * found) / asked)} %` : "–";
  return element("tr", {},
    element("th", { scope: "row" }, name), element("td", {}, `${format_number(found)} of ${format_number(asked)} ${unit}`), element("td", {}, share));
}

function cache_rows(reading) {
  const rows = [cache_row("Beginnings of prompts", "tokens", reading.sum("prefix_cache_queries_total"), reading.sum("prefix_cache_hits_total"))];
  for (const [name, metric] of [["Replies", "reply_cache_requests_total"], ["Replies by meaning", "reply_cache_meaning_requests_total"]]) {
    const count = (result) => reading.all(metric).filter((one) => one.labels.result === result).reduce((sum, one) => sum + one.value, 0);
    if (reading.all(metric).length > 0) rows.push(cache_row(name, "requests", count("hit") + count("miss"), count("hit")));
  }
  return rows;
}

// Which models the routes chose, and what that cost and saved, since the start.
function route_rows(reading) {
  const rows = [];
  for (const { labels: { route }, value: cost } of reading.all("route_cost_total")) {
    const of = (name) => reading.all(name).filter((one) => one.labels.route === route);
    const requests = new Map();
    for (const { labels, value } of of("route_decisions_total")) requests.set(labels.model, (requests.get(labels.model) ?? 0) + value);
    const abandoned = of("route_cascade_total").filter((one) => one.labels.result === "abandoned").reduce((sum, one) => sum + one.value, 0);
    const saved = of("route_cost_saved").reduce((sum, one) => sum + one.value, 0);
    const share = cost + saved > 0 ? ` (${format_number((100 * saved) / (cost + saved))} %)` : "";
    rows.push(element("tr", {},
      element("th", { scope: "row" }, route),
      element("td", {}, [...requests].map(([model, n]) => `${model} ${format_number(n)}`).join(", ") || "–"),
      element("td", {}, format_number(abandoned)), element("td", {}, cost.toFixed(4)), element("td", {}, `${saved.toFixed(4)}${share}`)));
  }
  return rows;
}

export class Lists {
  // newest(): the last reading of /metrics. What it does not tell of is not asked for, as it would be refused.
  constructor(newest) {
    this.newest = newest;
    this.shown = false;
    document.addEventListener("visibilitychange", () => this.schedule(0));
  }

  show(shown) {
    this.shown = shown;
    this.schedule(0);
  }

  schedule(delay) {
    clearTimeout(this.timer);
    if (this.shown && !document.hidden) this.timer = setTimeout(() => this.refresh(), delay);
  }

  async refresh() {
    const reading = this.newest();
    const has_batches = reading?.all("batch_lines_running").length > 0;
    const [models, batches] = await Promise.allSettled([
      get_json("v1/models"), has_batches ? get_json(`v1/batches?limit=${kMostBatches}`) : null]);
    if (models.status === "fulfilled") this.fill("models", models.value.data.map(model_row));
    if (reading) this.fill("caches", cache_rows(reading));
    const routes = reading ? route_rows(reading) : [];
    $("routes-section").hidden = routes.length === 0;
    this.fill("routes", routes);
    this.show_list("batches", batches, (one) => batch_row(one, (id) => this.cancel(id)));
    // A key that may not is not asked for again and again.
    if (models.status === "fulfilled") this.schedule(kEveryMs);
  }

  show_list(name, answer, row) {
    const data = answer.value?.data;
    $(`${name}-section`).hidden = !data;
    if (data) this.fill(name, data.map(row));
  }

  // Rows are only replaced when they say something else, so that focus and pointer stay where they are.
  fill(name, rows) {
    const body = $(`${name}-rows`);
    $(`${name}-none`).hidden = rows.length > 0;
    $(`${name}-table`).hidden = rows.length === 0;
    if (body.children.length === rows.length && rows.every((row, i) => row.isEqualNode(body.children[i]))) return;
    const focused = document.activeElement?.getAttribute?.("aria-label");
    body.replaceChildren(...rows);
    if (focused) [...body.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === focused)?.focus();
  }

  async cancel(id) {
    try {
      await post(`v1/batches/${id}/cancel`);
      announce("The batch is being cancelled");
    } catch (error) {
      announce(error.message);
    }
    this.schedule(0);
  }
}
