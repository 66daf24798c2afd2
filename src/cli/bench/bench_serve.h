// penstock bench --serve: a load of many requests on an engine in this process.
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
  std::string trace;  // "": lengths around mean_prompt and mean_output
  int n_requests = 100;
  double rate = 0;          // open loop: requests per second; 0 = as the trace has it
  int concurrency = 0;      // > 0: closed loop, this many requests at any time
  double length_scale = 1;  // of prompts and outputs
  int max_length = 0;       // of prompt and output together; longer requests are left out; 0 = max_model_len
  int mean_prompt = 200, mean_output = 100;
  int shared_prefix = 0;  // leading tokens that all prompts have in common
  std::string svg;        // "": no plot

  void add_options(CLI::App& app);
};

// Ascending values; quantile by linear interpolation. Nothing: 0.
double percentile(const std::vector<double>& ascending, double share);

struct Spread {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
  static Spread of(std::vector<double> values);
};

// The engine's state every 50 ms or so.
struct LoadSample {
  double time = 0;  // seconds
  double running = 0, waiting = 0;
  double cache_usage = 0, waste = 0;  // shares
  double hit_share = 0;               // of the prompt tokens looked up since the sample before
  double tokens_per_second = 0;       // output, since the sample before
};

struct ServeReport {
  int n_requests = 0, n_failed = 0;
  double seconds = 0;
  double prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double computed_tokens = 0;  // by the model, prompts and outputs
  double schedule_share = 0;   // of the time in steps
  double schedule_seconds_per_step = 0;
  double preemptions = 0;
  double most_running = 0, mean_running = 0, mean_waste = 0;
  Spread first_token, inter_token, total;  // seconds
  std::vector<LoadSample> samples;
};

// REQUIRES: the engine's thread runs. Errors: those of the trace; kCancelled after Ctrl-C.
Result<ServeReport> run_load(Engine& engine, const ServeLoad& load);

nlohmann::json report_json(const ServeReport& report);
void print_report(const ServeReport& report);
// Batch size, waiting requests, cache and throughput over time, and the latencies' quantiles.
std::string plot_svg(const ServeReport& report, const std::string& title);

}  // namespace penstock
