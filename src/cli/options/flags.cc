#include "cli/options/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

#include "base/ascii.h"
#include "base/locale_free.h"
#include "draft/drafters.h"
#include "engine/schedule/policies.h"
#include "ops/ops.h"

namespace penstock {
namespace {

// Short and alternative flag names that similar programs use, by field.
const std::map<std::string, std::string>& aliases() {
  static const std::map<std::string, std::string> map = {
      {"max_tokens", "-n,--max-tokens,--n-predict"},
      {"n", "--n,--num-sequences"},
      {"temperature", "--temperature,--temp"},
      {"repetition_penalty", "--repetition-penalty,--repeat-penalty"},
      {"seed", "-s,--seed"},
      {"model", "-m,--model"},
      {"threads", "-t,--threads"},
      {"max_model_len", "-c,--max-model-len,--ctx-size"},
      {"memory_utilization", "--memory-utilization,--gpu-memory-utilization"},
  };
  return map;
}

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string flag_name(const std::string& field) {
  const auto found = aliases().find(field);
  return found != aliases().end() ? found->second : "--" + dashed(field);
}

// Returns text to append to a field's help, such as the list of permitted names.
std::string help_end(std::string_view field) {
  if (field == "model") return ", or a name: org/name:Q4_K_M";
  if (field == "backend") return " (auto, " + backend_names() + ")";
  if (field == "policy") return " (" + policy_names() + ")";
  if (field == "spec") return " (" + drafter_names() + ")";
  return "";
}

// Parses a logit bias such as "15=-2.5" to {15, -2.5}. Returns the error, or "".
std::string parse_bias(const std::string& text, std::vector<std::pair<TokenId, float>>& out) {
  const size_t equals = text.find_first_of("=:");
  try {
    size_t used_id = 0;
    char* end = nullptr;
    const std::string id = text.substr(0, equals);
    const std::string bias = equals == std::string::npos ? "" : text.substr(equals + 1);
    const TokenId token = std::stoi(id, &used_id);
    const double value = locale_free_strtod(bias.c_str(), &end);
    const bool fits = std::isinf(value) == std::isinf(static_cast<float>(value));
    if (used_id == id.size() && !bias.empty() && *end == '\0' && fits) {
      out.emplace_back(token, static_cast<float>(value));
      return {};
    }
  } catch (const std::exception&) {
  }
  return "expected TOKEN_ID=BIAS, got " + text;
}

template <class T>
CLI::Option* add_flag_for(CLI::App& app, const std::string& names, T& field,
                          const std::string& help) {
  if constexpr (std::is_same_v<T, bool>) {
    return app.add_flag(names + ",!--no-" + names.substr(names.rfind("--") + 2), field, help);
  } else if constexpr (std::is_same_v<T, std::vector<std::pair<TokenId, float>>>) {
    return app
        .add_option_function<std::vector<std::string>>(
            names,
            [&field](const std::vector<std::string>& values) {
              for (const std::string& value : values) {
                if (std::string error = parse_bias(value, field); !error.empty()) {
                  throw CLI::ValidationError("--logit-bias", error);
                }
              }
            },
            help)
        ->type_name("ID=BIAS ...");
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return app
        .add_option_function<std::string>(
            names,
            [&field, names](const std::string& value) {
              if (std::string error = parse_bytes(value, field); !error.empty()) {
                throw CLI::ValidationError(names, error);
              }
            },
            help)
        ->type_name("SIZE");
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    // One text each time: a second one could be the model.
    return app.add_option(names, field, help + "; may be repeated")->allow_extra_args(false);
  } else if constexpr (requires { field.has_value(); }) {
    return app.add_option(names, field, help);
  } else {
    CLI::Option* option = app.add_option(names, field, help);
    if constexpr (std::is_arithmetic_v<T>) {
      option->capture_default_str();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!field.empty()) option->capture_default_str();
    }
    return option;
  }
}

}  // namespace

std::string parse_bytes(const std::string& text, int64_t& bytes) {
  char* end = nullptr;
  double value = locale_free_strtod(text.c_str(), &end);
  const std::string unit = end;
  const size_t power = unit.empty() ? 0 : std::string("KMGT").find(ascii_upper(unit[0])) + 1;
  const std::string rest = unit.empty() ? "" : unit.substr(1);
  if (end != text.c_str() && (unit.empty() || power > 0) &&
      (rest.empty() || rest == "B" || rest == "iB" || rest == "b") && value >= 0 && value < 1e15) {
    for (size_t i = 0; i < power; ++i) value *= 1024;
    if (value >= 0x1p63) return "expected a size below 8388608 TiB, got " + text;
    bytes = static_cast<int64_t>(value);
    return {};
  }
  return "expected a size such as 512M or 1.5GiB, got " + text;
}

SamplingFlags::SamplingFlags(CLI::App& app) {
  SamplingParams::visit(values_,
                        [&](const char* field, auto& value, const char* help, const auto&) {
                          CLI::Option* option = add_flag_for(app, flag_name(field), value, help);
                          flags_.push_back({field, option->group("Sampling")});
                        });
}

bool SamplingFlags::given(const std::string& field) const {
  return std::any_of(flags_.begin(), flags_.end(), [&](const Flag& flag) {
    return flag.field == field && flag.option->count() > 0;
  });
}

SamplingParams SamplingFlags::over(const SamplingParams& defaults) const {
  SamplingParams result = defaults;
  std::map<std::string, const void*> given_values;
  SamplingParams::visit(values_,
                        [&](const char* field, const auto& value, const char*, const auto&) {
                          if (given(field)) given_values[field] = &value;
                        });
  SamplingParams::visit(result, [&](const char* field, auto& value, const char*, const auto&) {
    using Field = std::remove_reference_t<decltype(value)>;
    if (const auto found = given_values.find(field); found != given_values.end()) {
      value = *static_cast<const Field*>(found->second);
    }
  });
  return result;
}

void add_engine_flags(CLI::App& app, EngineConfig& config) {
  EngineConfig::visit(config, [&](const char* field, auto& value, const char* help) {
    if (std::string_view(field) == "seed") return;  // --seed is the flag of a request's seed
    CLI::Option* const option = add_flag_for(app, flag_name(field), value, help + help_end(field));
    option->group("Engine");
    if (std::string_view(field) == "override_tensor") option->join(',');
  });
}

}  // namespace penstock
