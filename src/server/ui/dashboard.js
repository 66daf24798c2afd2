// Reads /metrics once a second while it is shown (less often behind the chat) and draws what changed.
import { get_text } from "./api.js";
import { Chart, format_number } from "./chart.js";
import { $, element } from "./dom.js";
import { finish_rate, mean_rate, quantile, rate, ratio, Reading } from "./metrics.js";
import { UseTable } from "./use.js";

const kShownMs = 1000, kHiddenMs = 3000;
const kKeptSeconds = 960;
const kQuantileSeconds = 15;

const ms = (seconds) => (seconds === null ? null : seconds * 1000);
const percent = (share) => (share === null ? null : 100 * share);

// One point of every chart, from the reading before, one about 15 s old, and the new one.
function point_of(before, old, now) {
  return {
    time: now.time,
    generated: rate(before, now, "generation_tokens_total"),
    computed: Math.max(0, rate(before, now, "prompt_tokens_total") - rate(before, now, "prompt_tokens_cached_total")),
    cached: rate(before, now, "prompt_tokens_cached_total"),
    ttft: ms(quantile(old, now, "time_to_first_token_seconds", 0.5)),
    ttft95: ms(quantile(old, now, "time_to_first_token_seconds", 0.95)),
    itl: ms(quantile(old, now, "inter_token_latency_seconds", 0.5)),
    itl95: ms(quantile(old, now, "inter_token_latency_seconds", 0.95)),
    running: now.sum("num_requests_running"),
    waiting: now.sum("num_requests_waiting"),
    step_tokens: ratio(before, now, "iteration_tokens_total_sum", "iteration_tokens_total_count"),
    step_seqs: ratio(before, now, "iteration_num_seqs_sum", "iteration_num_seqs_count"),
    cache: percent(now.mean("kv_cache_usage_perc")),
    hits: percent(ratio(old, now, "prefix_cache_hits_total", "prefix_cache_queries_total")),
    wait: ms(quantile(old, now, "request_queue_time_seconds", 0.95)),
    finished: finish_rate(before, now),
    n_finished: now.n_finished(),
    busy: percent(mean_rate(before, now, "step_seconds_total")),
    model: percent(mean_rate(before, now, "forward_seconds_total")),
  };
}

const kCharts = [
  { title: "Throughput", unit: "tokens/s", series: [["generated", "generated"], ["prompt", "computed"], ["cached prompt", "cached"]] },
  { title: "Time to first token", unit: "ms", series: [["median", "ttft"], ["95th", "ttft95"]] },
  { title: "Time between tokens", unit: "ms", series: [["median", "itl"], ["95th", "itl95"]] },
  { title: "Requests", unit: "at once", series: [["running", "running"], ["waiting", "waiting"]] },
  { title: "Batch size", unit: "per step", series: [["tokens", "step_tokens"], ["sequences", "step_seqs"]] },
  { title: "KV cache", unit: "%", series: [["in use", "cache"], ["prefix hits", "hits"]], most: 100 },
  { title: "Wait in the queue", unit: "ms", series: [["95th", "wait"]] },
  { title: "Requests finished", unit: "per second", series: [["finished", "finished"]] },
  { title: "Engine's time", unit: "%", series: [["busy", "busy"], ["in the model", "model"]], most: 100 },
];
const kTiles = [
  ["Generated", "generated", "tok/s"], ["First token", "ttft", "ms"], ["Running", "running", ""],
  ["Waiting", "waiting", ""], ["KV cache", "cache", "%"], ["Finished", "n_finished", "in all"],
];

export class Dashboard {
  // onpoll(error or null) is told how each reading went.
  constructor(onpoll) {
    this.onpoll = onpoll;
    this.use = new UseTable();
    this.readings = [];
    this.points = new Map();  // by model, "" for all of them together
    this.shown = false;
    this.refused = false;  // by the key: asking again would only fill the server's log
    this.charts = kCharts.map(({ series, ...rest }) => new Chart({
      ...rest, series: series.map(([label, field]) => ({ label, value: (point) => point[field] })),
    }));
    this.tiles = kTiles.map(([label]) => ({ label, value: element("dd") }));
    $("tiles").append(...this.tiles.map(({ label, value }) => element("dl", { class: "tile" }, element("dt", {}, label), value)));
    $("charts").append(...this.charts.map((chart) => chart.figure));
    for (const id of ["charted-model", "window"]) $(id).addEventListener("change", () => this.draw());
    addEventListener("resize", () => this.draw());
    document.addEventListener("visibilitychange", () => this.schedule(0));
    this.schedule(0);
  }

  show(shown) {
    this.shown = shown;
    this.use.show(shown);
    this.draw();
    this.schedule(0);
  }

  schedule(delay) {
    clearTimeout(this.timer);
    if (!document.hidden && !this.refused) this.timer = setTimeout(() => this.poll(), delay);
  }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    try {
      this.add(new Reading(await get_text("metrics"), performance.now() / 1000));
      this.onpoll(null);
    } catch (error) {
      this.readings = [];  // a restarted server counts from 0 again
      this.refused = error.status === 401 || error.status === 403;
      this.onpoll(error);
    }
    this.polling = false;
    this.schedule(this.shown ? kShownMs : kHiddenMs);
  }

  // The key may be another one now.
  resume() {
    this.refused = false;
    this.schedule(0);
  }

  add(reading) {
    const before = this.readings.at(-1);
    if (before && reading.time - before.time < 0.2) return;
    if (before && reading.sum("generation_tokens_total") < before.sum("generation_tokens_total")) this.readings = [];
    this.readings.push(reading);
    while (this.readings.length > 2 && this.readings[1].time <= reading.time - kQuantileSeconds) this.readings.shift();
    for (const model of ["", ...reading.models()]) this.add_point(model);
    for (const [model, points] of this.points) {
      while (points.length > 0 && points[0].time < reading.time - kKeptSeconds) points.shift();
      if (points.length === 0) this.points.delete(model);
    }
    this.draw();
  }

  // A model that was just loaded has no reading before.
  add_point(model) {
    const [before, old, now] = [this.readings.at(-2), this.readings[0], this.readings.at(-1)].map((one) => one?.of(model));
    if (!before || before.samples.size === 0) return;
    if (!this.points.has(model)) this.points.set(model, []);
    this.points.get(model).push(point_of(before, old, now));
  }

  // The chooser has the models that are served, and the one that was chosen though it is gone; it shows with several.
  show_models() {
    const chosen = $("charted-model").value;
    const names = [...new Set([...(this.readings.at(-1)?.models() ?? []), ...(chosen ? [chosen] : [])])];
    $("charted").hidden = names.length < 2 && chosen === "";
    const options = [element("option", { value: "" }, "all models"), ...names.map((name) => element("option", { value: name }, name))];
    const shown = $("charted-model").options;
    if (options.length === shown.length && options.every((one, i) => one.isEqualNode(shown[i]))) return;
    $("charted-model").replaceChildren(...options);
    $("charted-model").value = chosen;
  }

  draw() {
    if (!this.shown) return;
    this.show_models();
    const points = this.points.get($("charted-model").value) ?? [];
    for (const chart of this.charts) chart.update(points, Number($("window").value));
    const newest = points.at(-1);
    kTiles.forEach(([, field, unit], i) => {
      const text = newest ? format_number(newest[field]) : "–";
      this.tiles[i].value.replaceChildren(text, element("small", {}, unit));
    });
  }
}
