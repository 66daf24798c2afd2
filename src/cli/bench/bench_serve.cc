#include "cli/bench/bench_serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/result.h"
#include "cli/bench/trace.h"
#include "cli/console/terminal.h"

namespace penstock {
namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Collects the times of all requests on the engine thread.
class LoadSink : public EventSink {
 public:
  explicit LoadSink(size_t n) : requests_(n) {}

  // Returns the sink of request `index`. due: time at which the request should be sent.
  std::shared_ptr<EventSink> sink_for(size_t index, Clock::time_point due) {
    requests_[index].due = due;
    struct Part : EventSink {
      LoadSink* all;
      size_t index;
      void on_tokens(RequestId, std::span<const TokenEvent> events) override {
        all->note(index, events);
      }
    };
    auto part = std::make_shared<Part>();
    part->all = this;
    part->index = index;
    return part;
  }
  void on_tokens(RequestId, std::span<const TokenEvent>) override {}

  void fail_one() {
    const std::scoped_lock lock(mutex_);
    ++n_done_, ++n_failed_;
    changed_.notify_all();
  }
  // Returns false if `time` comes before n_done requests have ended.
  bool wait_until(Clock::time_point time, size_t n_done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, time, [&] { return n_done_ >= n_done; });
  }
  size_t n_done() const {
    const std::scoped_lock lock(mutex_);
    return n_done_;
  }

  void summarize(ServeReport& report) const {
    std::vector<double> first, between, total;
    const std::scoped_lock lock(mutex_);
    for (const Times& each : requests_) {
      if (!each.ended) continue;
      first.push_back(seconds_between(each.due, each.first));
      total.push_back(seconds_between(each.due, each.last));
    }
    report.n_failed = n_failed_;
    report.output_tokens = n_tokens_;
    report.first_token = Spread::of(std::move(first));
    report.inter_token = Spread::of(gaps_);
    report.total = Spread::of(std::move(total));
  }

 private:
  struct Times {
    Clock::time_point due, first, last;
    bool started = false, ended = false;
  };
  void note(size_t index, std::span<const TokenEvent> events) {
    const Clock::time_point now = Clock::now();
    const std::scoped_lock lock(mutex_);
    Times& times = requests_[index];
    const size_t n_done = n_done_;
    for (const TokenEvent& event : events) {
      if (event.token != kNoToken) {
        n_tokens_ += 1;
        if (times.started) gaps_.push_back(seconds_between(times.last, now));
        if (!times.started) times.first = now;
        times.started = true;
        times.last = now;
      }
      if (event.finish == FinishReason::kNone) continue;
      times.ended = times.started;
      n_failed_ += event.finish == FinishReason::kError || event.finish == FinishReason::kAbort;
      ++n_done_;
    }
    if (n_done_ > n_done) changed_.notify_all();  // only when a request ended: a system call
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Times> requests_;
  std::vector<double> gaps_;
  double n_tokens_ = 0;
  size_t n_done_ = 0;
  int n_failed_ = 0;
};

// Samples the engine's metrics every 50 ms on its own thread.
class Sampling {
 public:
  explicit Sampling(const Engine& engine) : engine_(engine), last_(engine.metrics()) {
    thread_ = std::thread([this] {
      while (!stopping_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        take();
      }
    });
  }
  ~Sampling() { stop(); }
  std::vector<LoadSample> stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return std::move(samples_);
  }

 private:
  void take() {
    const Metrics now = engine_.metrics();
    const double time = seconds_between(start_, Clock::now());
    const double seconds = samples_.empty() ? time : time - samples_.back().time;
    const double queried = now.prefix_cache_queries.value - last_.prefix_cache_queries.value;
    const double hits = now.prefix_cache_hits.value - last_.prefix_cache_hits.value;
    samples_.push_back(
        {.time = time,
         .running = now.num_requests_running.value,
         .waiting = now.num_requests_waiting.value,
         .cache_usage = now.kv_cache_usage_perc.value,
         .waste = now.kv_cache_waste_perc.value,
         .hit_share = queried > 0 ? hits / queried : 0,
         .tokens_per_second =
             (now.generation_tokens.value - last_.generation_tokens.value) / seconds});
    last_ = now;
  }

  const Engine& engine_;
  const Clock::time_point start_ = Clock::now();
  Metrics last_;
  std::vector<LoadSample> samples_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Result<std::vector<TraceRequest>> requests_of(const Engine& engine, const ServeLoad& load) {
  // Reads more requests than needed, since those that are too long are omitted.
  std::vector<TraceRequest> all =
      uniform_trace(static_cast<size_t>(load.n_requests), load.mean_prompt, load.mean_output);
  if (!load.trace.empty()) {
    ASSIGN_OR_RETURN(all, read_trace(load.trace, static_cast<size_t>(load.n_requests) * 20));
  }
  const int longest = load.max_length > 0 ? std::min(load.max_length, engine.info().max_model_len)
                                          : engine.info().max_model_len;
  std::vector<TraceRequest> chosen;
  for (TraceRequest& request : all) {
    const auto scaled = [&](int n) {
      return std::max(1, static_cast<int>(std::lround(n * load.length_scale)));
    };
    request.prompt_tokens = std::max(scaled(request.prompt_tokens), load.shared_prefix + 1);
    request.output_tokens = scaled(request.output_tokens);
    if (request.prompt_tokens + request.output_tokens > longest) continue;
    if (chosen.size() < static_cast<size_t>(load.n_requests)) chosen.push_back(std::move(request));
  }
  if (chosen.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "no request of the trace fits into {} tokens",
                  longest);
  }
  if (load.rate > 0) {
    const double start = chosen.front().arrival, end = chosen.back().arrival;
    const double own = end > start ? static_cast<double>(chosen.size() - 1) / (end - start) : 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      chosen[i].arrival = own > 0 ? (chosen[i].arrival - start) * own / load.rate
                                  : static_cast<double>(i) / load.rate;
    }
  }
  return chosen;
}

Request engine_request(const TraceRequest& traced, size_t index, const ServeLoad& load,
                       int vocab_size) {
  Request request;
  request.prompt = trace_prompt(traced, index, load.shared_prefix, vocab_size);
  request.sampling.max_tokens = traced.output_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

Status send_all(Engine& engine, const ServeLoad& load, const std::vector<TraceRequest>& requests,
                LoadSink& sink) {
  const Clock::time_point start = Clock::now();
  const auto interrupted_wait = [&](Clock::time_point until, size_t n_done) {
    while (!interrupted()) {
      const auto slice = std::min(until, Clock::now() + std::chrono::milliseconds(100));
      if (sink.wait_until(slice, n_done) || slice == until) return true;
    }
    return false;
  };
  const auto far = start + std::chrono::hours(24 * 365);
  for (size_t i = 0; i < requests.size(); ++i) {
    Clock::time_point due = Clock::now();
    bool go_on = true;
    if (load.concurrency > 0) {
      const auto most = static_cast<size_t>(load.concurrency);
      if (i >= most) go_on = interrupted_wait(far, i - most + 1);
      due = Clock::now();
    } else {
      due = start + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(requests[i].arrival));
      if (due > Clock::now()) go_on = interrupted_wait(due, requests.size() + 1);
    }
    if (!go_on) return make_error(ErrorCode::kCancelled, "interrupted");
    const auto id = engine.submit(engine_request(requests[i], i, load, engine.info().vocab_size),
                                  sink.sink_for(i, due));
    if (!id) sink.fail_one();
  }
  if (!interrupted_wait(far, requests.size()))
    return make_error(ErrorCode::kCancelled, "interrupted");
  return {};
}

void fill_from_metrics(ServeReport& report, const Metrics& before, const Metrics& after) {
  const auto grown = [](const Counter& now, const Counter& then) { return now.value - then.value; };
  report.prompt_tokens = grown(after.prompt_tokens, before.prompt_tokens);
  report.cached_tokens = grown(after.prompt_tokens_cached, before.prompt_tokens_cached);
  report.preemptions = grown(after.num_preemptions, before.num_preemptions);
  report.computed_tokens = after.iteration_tokens_total.sum - before.iteration_tokens_total.sum;
  const double steps = grown(after.steps, before.steps),
               seconds = grown(after.step_seconds, before.step_seconds);
  const double scheduling = seconds - grown(after.forward_seconds, before.forward_seconds) -
                            grown(after.sample_seconds, before.sample_seconds);
  report.schedule_share = seconds > 0 ? scheduling / seconds : 0;
  report.schedule_seconds_per_step = steps > 0 ? scheduling / steps : 0;
}

}  // namespace

void ServeLoad::add_options(CLI::App& app) {
  const char* group = "Load (--serve)";
  app.add_flag("--serve", on, "measure a load of many requests in this process")->group(group);
  app.add_option("--trace", trace,
                 "CSV (Azure) or JSON lines (Mooncake) with arrival times and lengths")
      ->group(group);
  app.add_option("--requests", n_requests, "requests to send")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--rate", rate, "requests per second; 0 is as the trace has it")->group(group);
  app.add_option("--concurrency", concurrency, "closed loop: this many requests at any time")
      ->group(group);
  app.add_option("--length-scale", length_scale, "factor of prompt and output lengths")
      ->group(group);
  app.add_option("--max-length", max_length, "leave out requests with more tokens")->group(group);
  app.add_option("--mean-prompt", mean_prompt, "prompt tokens without a trace")
      ->capture_default_str()
      ->group(group);
  app.add_option("--mean-output", mean_output, "output tokens without a trace")
      ->capture_default_str()
      ->group(group);
  app.add_option("--shared-prefix", shared_prefix, "leading tokens that all prompts share")
      ->group(group);
  app.add_option("--serve-svg", svg, "draw batch size, cache and throughput over time to this file")
      ->group(group);
}

double percentile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0;
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] +
         (at - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

Spread Spread::of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {percentile(values, 0.5), percentile(values, 0.9), percentile(values, 0.99),
          values.empty() ? 0 : sum / static_cast<double>(values.size())};
}

Result<ServeReport> run_load(Engine& engine, const ServeLoad& load) {
  ASSIGN_OR_RETURN(const std::vector<TraceRequest> requests, requests_of(engine, load));
  const Metrics before = engine.metrics();
  LoadSink sink(requests.size());
  Sampling sampling(engine);
  const Clock::time_point start = Clock::now();
  const Status sent = send_all(engine, load, requests, sink);
  ServeReport report;
  report.seconds = seconds_between(start, Clock::now());
  report.samples = sampling.stop();
  if (!sent) {
    engine.stop();  // before the sink is destroyed
    return tl::unexpected(sent.error());
  }
  report.n_requests = static_cast<int>(requests.size());
  sink.summarize(report);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // metrics of the last step come after its tokens
  fill_from_metrics(report, before, engine.metrics());
  double busy = 0;
  for (const LoadSample& sample : report.samples) {
    report.most_running = std::max(report.most_running, sample.running);
    report.mean_running += sample.running;
    report.mean_waste += sample.running > 0 ? sample.waste : 0;
    busy += sample.running > 0 ? 1 : 0;
  }
  report.mean_running /= std::max<double>(1, static_cast<double>(report.samples.size()));
  report.mean_waste /= std::max(1.0, busy);
  return report;
}

nlohmann::json report_json(const ServeReport& report) {
  const auto spread = [](const Spread& s) {
    return nlohmann::json{{"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}, {"mean", s.mean}};
  };
  nlohmann::json samples = nlohmann::json::array();
  for (const LoadSample& s : report.samples) {
    samples.push_back({{"time", s.time},
                       {"running", s.running},
                       {"waiting", s.waiting},
                       {"cache_usage", s.cache_usage},
                       {"waste", s.waste},
                       {"hit_share", s.hit_share},
                       {"tokens_per_second", s.tokens_per_second}});
  }
  return {{"requests", report.n_requests},
          {"failed", report.n_failed},
          {"seconds", report.seconds},
          {"prompt_tokens", report.prompt_tokens},
          {"cached_tokens", report.cached_tokens},
          {"output_tokens", report.output_tokens},
          {"computed_tokens", report.computed_tokens},
          {"output_tokens_per_second", report.output_tokens / report.seconds},
          {"requests_per_second", report.n_requests / report.seconds},
          {"schedule_share", report.schedule_share},
          {"schedule_seconds_per_step", report.schedule_seconds_per_step},
          {"preemptions", report.preemptions},
          {"most_running", report.most_running},
          {"mean_running", report.mean_running},
          {"mean_waste", report.mean_waste},
          {"time_to_first_token", spread(report.first_token)},
          {"inter_token_latency", spread(report.inter_token)},
          {"total", spread(report.total)},
          {"samples", samples}};
}

void print_report(const ServeReport& report) {
  fmt::print("{} requests in {:.1f} s, {} failed: {:.2f} requests/s, {:.1f} output tokens/s\n",
             report.n_requests, report.seconds, report.n_failed, report.n_requests / report.seconds,
             report.output_tokens / report.seconds);
  fmt::print(
      "tokens: {:.0f} of prompts ({:.0f} from the cache), {:.0f} of output, {:.0f} computed\n",
      report.prompt_tokens, report.cached_tokens, report.output_tokens, report.computed_tokens);
  const auto row = [](const char* name, const Spread& s) {
    fmt::print("{:<20} {:9.1f} {:9.1f} {:9.1f}\n", name, s.p50 * 1e3, s.p90 * 1e3, s.p99 * 1e3);
  };
  fmt::print("{:<20} {:>9} {:>9} {:>9}\n", "milliseconds", "p50", "p90", "p99");
  row("time to first token", report.first_token);
  row("between tokens", report.inter_token);
  row("whole request", report.total);
  fmt::print(
      "sequences at once: {:.0f} at most, {:.1f} on average; {:.0f} preemptions; {:.1f} % of their "
      "blocks unfilled\n",
      report.most_running, report.mean_running, report.preemptions, report.mean_waste * 100);
  fmt::print("scheduling: {:.2f} % of the step time, {:.0f} us per step\n",
             report.schedule_share * 100, report.schedule_seconds_per_step * 1e6);
}

}  // namespace penstock
