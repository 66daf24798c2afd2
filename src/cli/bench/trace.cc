#include "cli/bench/trace.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/ascii.h"
#include "base/json_text.h"
#include "base/locale_free.h"
#include "cli/console/input.h"

namespace penstock {
namespace {

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Parses a timestamp such as "2023-11-16 18:15:46.6805900" to seconds. Returns false on errors.
bool parse_time(const std::string& text, double& seconds) {
  std::tm time{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &time);
  if (rest == nullptr) return false;
  char* end = nullptr;
  const double fraction = *rest == '.' ? locale_free_strtod(rest, &end) : 0;
  seconds = static_cast<double>(timegm(&time)) + fraction;
  return true;
}

bool parse_count(const std::string& text, int& value) {
  char* end = nullptr;
  const long parsed = std::strtol(text.c_str(), &end, 10);
  while (end != nullptr && is_ascii_space(*end)) ++end;
  if (end == text.c_str() || *end != '\0' || parsed < 0 || parsed > (1 << 24)) return false;
  value = static_cast<int>(parsed);
  return true;
}

bool parse_csv_line(const std::string& line, TraceRequest& request) {
  std::istringstream fields(line);
  std::string time, prompt, output;
  return std::getline(fields, time, ',') && std::getline(fields, prompt, ',') &&
         std::getline(fields, output, ',') && parse_time(time, request.arrival) &&
         parse_count(prompt, request.prompt_tokens) && parse_count(output, request.output_tokens);
}

bool parse_json_line(const std::string& line, TraceRequest& request) {
  const nlohmann::json object = bounded_json(line);
  if (!object.is_object()) return false;
  const auto number = [&](const char* key, double& value) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return false;
    value = found->get<double>();
    return value >= 0 && value < 1e15;
  };
  double arrival = 0, prompt = 0, output = 0;
  if (!number("timestamp", arrival) || !number("input_length", prompt) ||
      !number("output_length", output))
    return false;
  if (prompt > (1 << 24) || output > (1 << 24)) return false;
  request.arrival = arrival / 1e3;
  request.prompt_tokens = static_cast<int>(prompt);
  request.output_tokens = static_cast<int>(output);
  if (const auto ids = object.find("hash_ids"); ids != object.end() && ids->is_array()) {
    for (const auto& id : *ids) {
      if (!id.is_number_integer()) return false;
      request.blocks.push_back(id.get<int64_t>());
    }
  }
  return true;
}

}  // namespace

Result<std::vector<TraceRequest>> read_trace(const std::filesystem::path& path, size_t most) {
  ASSIGN_OR_RETURN(const auto file, open_input(path));
  std::vector<TraceRequest> requests;
  std::string line;
  for (int number = 1; requests.size() < most && std::getline(*file, line); ++number) {
    if (line.empty() || line.starts_with("TIMESTAMP")) continue;
    TraceRequest request;
    if (line[0] == '{' ? !parse_json_line(line, request) : !parse_csv_line(line, request)) {
      return errorf(ErrorCode::kCorruptFile,
                    "trace {}, line {}: expected TIMESTAMP,ContextTokens,GeneratedTokens or an "
                    "object with timestamp, input_length and output_length, got {}",
                    path.string(), number, line.substr(0, 60));
    }
    request.prompt_tokens = std::max(request.prompt_tokens, 1);
    request.output_tokens = std::max(request.output_tokens, 1);
    requests.push_back(std::move(request));
  }
  if (requests.empty())
    return errorf(ErrorCode::kCorruptFile, "trace {}: holds no request", path.string());
  const auto by_arrival = [](const TraceRequest& a, const TraceRequest& b) {
    return a.arrival < b.arrival;
  };
  std::stable_sort(requests.begin(), requests.end(), by_arrival);
  const double start = requests.front().arrival;
  for (TraceRequest& request : requests) request.arrival -= start;
  return requests;
}

std::vector<TraceRequest> uniform_trace(size_t n, int mean_prompt, int mean_output) {
  std::vector<TraceRequest> requests(n);
  for (size_t i = 0; i < n; ++i) {
    const auto around = [&](int mean, uint64_t salt) {
      const double share = static_cast<double>(mix(i * 2 + salt) % 1001) / 1000.0;
      return std::max(1, static_cast<int>(std::lround(mean * (0.5 + share))));
    };
    requests[i].prompt_tokens = around(mean_prompt, 1);
    requests[i].output_tokens = around(mean_output, 2);
  }
  return requests;
}

std::vector<TokenId> trace_prompt(const TraceRequest& request, size_t index, int shared_prefix,
                                  int vocab_size) {
  std::vector<TokenId> prompt(request.prompt_tokens);
  for (int i = 0; i < request.prompt_tokens; ++i) {
    const size_t block = static_cast<size_t>(i / kTraceBlock);
    uint64_t stream = 0x1000000000ull + index;
    if (i < shared_prefix) {
      stream = 1;
    } else if (block < request.blocks.size()) {
      stream = 0x2000000000ull + static_cast<uint64_t>(request.blocks[block]);
    }
    prompt[i] =
        static_cast<TokenId>(mix(stream * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(i)) %
                             static_cast<uint64_t>(vocab_size));
  }
  return prompt;
}

}  // namespace penstock
