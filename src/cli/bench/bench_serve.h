// penstock bench --serve: runs a load of many requests on an engine in this process.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "penstock/engine.h"

namespace CLI {
class App;
}

namespace penstock {

struct ServeLoad {
  bool on = false;
  // file of a request trace; "": lengths spread around mean_prompt and mean_output
  std::string trace;
  int n_requests = 100;
  // open loop: requests per second; 0: arrival times of the trace
  double rate = 0;
  // > 0: closed loop with this number of concurrent requests
  int concurrency = 0;
  // factor on the lengths of prompts and outputs
  double length_scale = 1;
  // Maximum tokens of prompt and output together; longer requests are omitted; 0: max_model_len.
  int max_length = 0;
  int mean_prompt = 200, mean_output = 100;
  // number of leading tokens that all prompts share
  int shared_prefix = 0;
  std::string svg;  // file of the plot; "": none

  void add_options(CLI::App& app);
};

// Returns a quantile of ascending values by linear interpolation; 0 if there are none.
double percentile(const std::vector<double>& ascending, double share);

struct Spread {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
  static Spread of(std::vector<double> values);
};

// A sample of the engine's state, taken about every 50 ms.
struct LoadSample {
  double time = 0;  // seconds since the start
  double running = 0, waiting = 0;
  double cache_usage = 0, waste = 0;  // shares, 0 to 1
  // Prefix cache hits as a share of the prompt tokens looked up since the previous sample.
  double hit_share = 0;
  // output tokens per second since the previous sample
  double tokens_per_second = 0;
};

struct ServeReport {
  int n_requests = 0, n_failed = 0;
  double seconds = 0;
  double prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // tokens that the model computed, of prompts and outputs
  double computed_tokens = 0;
  // share of the steps' time that scheduling takes
  double schedule_share = 0;
  double schedule_seconds_per_step = 0;
  double preemptions = 0;
  double most_running = 0, mean_running = 0, mean_waste = 0;
  Spread first_token, inter_token, total;  // seconds
  std::vector<LoadSample> samples;
};

// Runs the load and reports. REQUIRES: the engine was started. Errors: those of read_trace();
// kCancelled after Ctrl-C.
Result<ServeReport> run_load(Engine& engine, const ServeLoad& load);

nlohmann::json report_json(const ServeReport& report);
void print_report(const ServeReport& report);
// Returns an SVG plot of batch size, waiting requests, cache use and throughput over time, and of
// the latencies' quantiles.
std::string plot_svg(const ServeReport& report, const std::string& title);

}  // namespace penstock
