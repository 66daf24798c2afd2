// Reading Prometheus' text format, and what the dashboard makes of two readings.

const kSample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;

function read_labels(text) {
  const labels = {};
  for (const [, name, value] of (text ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  }
  return labels;
}

function read_number(text) {
  return { "+Inf": Infinity, "-Inf": -Infinity }[text] ?? Number(text);
}

// One reading of /metrics. Names are looked up without their prefix, ours before vLLM's.
export class Reading {
  constructor(text, time) {
    this.time = time;  // seconds
    this.samples = new Map();  // name -> [{labels, value}]
    for (const line of text.split("\n")) {
      const match = line[0] === "#" ? null : kSample.exec(line);
      if (!match) continue;
      const sample = { labels: read_labels(match[2]), value: read_number(match[3]) };
      const list = this.samples.get(match[1]);
      if (list) list.push(sample);
      else this.samples.set(match[1], [sample]);
    }
  }

  // The names of the models that have samples.
  models() {
    return [...new Set(this.all("num_requests_running").map((sample) => sample.labels.model_name))];
  }

  // What it tells of one model; of all with "".
  of(model) {
    if (model === "") return this;
    const part = new Reading("", this.time);
    for (const [name, samples] of this.samples) {
      const own = samples.filter((sample) => sample.labels.model_name === model);
      if (own.length > 0) part.samples.set(name, own);
    }
    return part;
  }

  all(name) {
    return this.samples.get(`penstock:${name}`) ?? this.samples.get(`vllm:${name}`) ?? [];
  }

  // Over all models and engines; 0 when there is none.
  sum(name) {
    return this.all(name).reduce((sum, sample) => sum + sample.value, 0);
  }
  mean(name) {
    return this.sum(name) / Math.max(1, this.all(name).length);
  }

  // Cumulative counts by upper bound.
  buckets(name) {
    const counts = new Map();
    for (const { labels, value } of this.all(`${name}_bucket`)) {
      const bound = read_number(labels.le);
      counts.set(bound, (counts.get(bound) ?? 0) + value);
    }
    return counts;
  }

  // How many requests have finished: ours by reason in the name, vLLM's by a label; never both.
  n_finished() {
    const own = ["stop", "length", "abort", "error"].map((reason) => this.sum(`request_success_${reason}_total`));
    return own.some((count) => count > 0) ? own.reduce((sum, count) => sum + count, 0) : this.sum("request_success_total");
  }
}

// Events per second from `before` to `now`.
export function rate(before, now, name) {
  const seconds = now.time - before.time;
  return seconds > 0 ? Math.max(0, now.sum(name) - before.sum(name)) / seconds : null;
}

// The same of the mean engine.
export function mean_rate(before, now, name) {
  const sum = rate(before, now, name);
  return sum === null ? null : sum / Math.max(1, now.all(name).length);
}

export function finish_rate(before, now) {
  const seconds = now.time - before.time;
  return seconds > 0 ? Math.max(0, now.n_finished() - before.n_finished()) / seconds : null;
}

// Quotient of two counters' growth; null when the lower one stood still.
export function ratio(before, now, upper, lower) {
  const grown = now.sum(lower) - before.sum(lower);
  return grown > 0 ? (now.sum(upper) - before.sum(upper)) / grown : null;
}

// The q-quantile of what a histogram saw from `before` to `now`, by linear interpolation in its bucket; null without news.
export function quantile(before, now, name, q) {
  const then = before.buckets(name);
  const grown = [...now.buckets(name)].map(([bound, count]) => [bound, count - (then.get(bound) ?? 0)]).sort((a, b) => a[0] - b[0]);
  const count = grown.at(-1)?.[1] ?? 0;
  if (count <= 0) return null;
  const rank = q * count;
  let low = 0, below = 0;
  for (const [bound, cumulative] of grown) {
    if (cumulative >= rank && cumulative > below) {
      return bound === Infinity ? low : low + (bound - low) * (rank - below) / (cumulative - below);
    }
    if (bound !== Infinity) low = bound;
    below = cumulative;
  }
  return low;
}
