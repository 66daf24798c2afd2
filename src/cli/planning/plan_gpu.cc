#include "cli/planning/plan_gpu.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "ops/ops.h"

namespace penstock {
namespace {

constexpr double kGiga = 1e9;
// Assumed where nothing is measured: a GPU of middle size, and what a layer's exchange takes.
constexpr double kAssumedGpuGbps = 900, kExchangeSeconds = 30e-6;
constexpr double kDeviceShare = 0.9;  // memory_utilization of a device
constexpr int kTokensOfStep = 2048, kSequences = 64;

int64_t host_bytes_of(const DeviceBytes& bytes, const ExpertPlaces& places) {
  int64_t sum = 0;
  for (size_t i = 0; i < places.size(); ++i) sum += places[i] ? bytes.experts[i] : 0;
  return sum;
}

double measured_read(std::string_view backend) {
  const auto ops = make_ops(backend, {});
  return ops ? (*ops)->limits(0).read_bytes_per_second : 0;
}

}  // namespace

double token_seconds(const ModelConfig& config, const DeviceBytes& bytes,
                     const ExpertPlaces& places, const GpuRates& rates) {
  const double chosen = config.experts.count == 0
                            ? 0
                            : static_cast<double>(config.experts.routing.n_active) /
                                  static_cast<double>(config.experts.count);
  double seconds = static_cast<double>(bytes.others - bytes.looked_up) / rates.gpu_read;
  const double sent = 4.0 * (2 * config.expert_dim() + config.experts.count);
  for (size_t i = 0; i < bytes.experts.size(); ++i) {
    const double read = chosen * static_cast<double>(bytes.experts[i]);
    if (i < places.size() && places[i]) {
      seconds += read / rates.host_read + sent / rates.link + rates.exchange;
    } else {
      seconds += read / rates.gpu_read;
    }
  }
  return seconds;
}

GpuPlan::GpuPlan(CLI::App& app) {
  const char* const group = "A GPU";
  app.add_option("--gpu-memory", memory,
                 "memory of a GPU to plan for, such as 24GiB (default: of this machine's)")
      ->group(group);
  app.add_option("--gpu-gbps", gpu_gbps,
                 fmt::format("what the GPU reads, gigabytes per second (default: measured, or {} "
                             "assumed with --gpu-memory)",
                             kAssumedGpuGbps))
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--host-gbps", host_gbps,
                 "what the CPU reads, gigabytes per second (default: measured)")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--pcie-gbps", link_gbps, "the link between both, gigabytes per second (assumed)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--n-cpu-moe", n_cpu_moe, "as serve's: layers whose experts are the CPU's")
      ->group(group);
  app.add_flag("--cpu-moe", cpu_moe, "as serve's: the experts of all layers are the CPU's")
      ->group(group);
  app.add_option("--expert-cache-memory", expert_cache_memory,
                 "as serve's: bytes of the GPU for copies of the CPU's most used experts")
      ->group(group);
  app.add_option("--override-tensor", override_tensor, "as serve's: PATTERN=CPU or =CUDA0")
      ->join(',')
      ->group(group);
}

Status GpuPlan::check_unused(std::string_view why) const {
  const std::pair<const char*, bool> given[] = {{"--gpu-gbps", gpu_gbps != 0},
                                                {"--host-gbps", host_gbps != 0},
                                                {"--n-cpu-moe", n_cpu_moe >= 0},
                                                {"--cpu-moe", cpu_moe},
                                                {"--expert-cache-memory", expert_cache_memory >= 0},
                                                {"--override-tensor", !override_tensor.empty()}};
  for (const auto& [flag, is_given] : given) {
    if (is_given)
      return errorf(ErrorCode::kInvalidArgument, "{}: expected a GPU to plan for, got {}", flag,
                    why);
  }
  return {};
}

int64_t GpuPlan::copy_bytes(const Outcome& result, int64_t left) const {
  const int64_t most = std::clamp<int64_t>(left, 0, result.host_bytes);
  return expert_cache_memory >= 0 ? std::min(expert_cache_memory, most)
                                  : std::min(std::max<int64_t>(left, 0) / 2, result.host_bytes);
}

Result<std::optional<GpuPlan::Outcome>> GpuPlan::plan(const WeightSource& source,
                                                      const ModelConfig& config,
                                                      int64_t sequence_bytes) const {
  Outcome result;
  int64_t used = 0;  // by other programs
  result.rates = {gpu_gbps * kGiga, host_gbps * kGiga, link_gbps * kGiga, kExchangeSeconds};
  if (wanted()) {
    if (const std::string wrong = parse_bytes(memory, result.memory); !wrong.empty())
      return errorf(ErrorCode::kInvalidArgument, "--gpu-memory: {}", wrong);
    if (gpu_gbps == 0) result.rates.gpu_read = kAssumedGpuGbps * kGiga;
  } else {
    const auto gpu = make_ops("cuda", {});
    if (!gpu) {
      RETURN_IF_ERROR(check_unused("no GPU and no --gpu-memory"));
      return std::optional<Outcome>();
    }
    const MemoryState state = (*gpu)->memory();
    result.memory = state.total, used = state.total - state.free;
    result.gpu_measured = gpu_gbps == 0;
    if (result.gpu_measured) result.rates.gpu_read = (*gpu)->limits(0).read_bytes_per_second;
  }
  const DeviceBytes bytes = device_bytes(source, config);
  const auto room = static_cast<int64_t>(kDeviceShare * static_cast<double>(result.memory)) - used -
                    sequence_bytes - step_bytes(config, kTokensOfStep, kSequences);
  const ExpertWishes wishes{n_cpu_moe, cpu_moe, override_tensor};
  result.places = fitting_places(bytes, room);
  if (wishes.any()) {
    ASSIGN_OR_RETURN(result.places, wished_places(source, config, wishes));
  }
  result.host_bytes = host_bytes_of(bytes, result.places);
  result.weight_bytes = bytes.all() - result.host_bytes;
  result.fits = result.weight_bytes <= room;
  result.copy_bytes = copy_bytes(result, room + sequence_bytes - result.weight_bytes);
  result.host_measured = host_gbps == 0 && config.experts.count > 0;
  if (result.host_measured) result.rates.host_read = measured_read("cpu");
  result.tokens_per_second = 1 / token_seconds(config, bytes, result.places, result.rates);
  ExpertPlaces all;
  for (const int64_t experts : bytes.experts) all.push_back(experts > 0);
  result.all_experts_on_host = 1 / token_seconds(config, bytes, all, result.rates);
  return std::optional<Outcome>(std::move(result));
}

void GpuPlan::print(const Outcome& result) {
  const auto size = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  fmt::print("on a GPU of {:<11} weights {}{}\n", size(result.memory), size(result.weight_bytes),
             result.fits ? "" : ", which do not fit beside a step and one sequence");
  if (result.host_bytes == 0) {
    if (result.fits)
      fmt::print("one sequence there      at most {:.1f} tokens/s\n", result.tokens_per_second);
    return;
  }
  fmt::print("experts on the CPU      layers {}, {} (--n-cpu-moe, --override-tensor)\n",
             describe(result.places), size(result.host_bytes));
  if (result.copy_bytes > 0)
    fmt::print(
        "copies on the GPU       {} of those that are used most; the host has all of them twice, "
        "{} "
        "(--expert-cache-memory)\n",
        size(result.copy_bytes), size(2 * result.host_bytes));
  fmt::print(
      "one sequence there      at most {:.1f} tokens/s; with all experts on the CPU {:.1f} "
      "(predicted: the GPU reads {:.0f} GB/s, {}; the CPU {:.0f}, {}; {:.0f} us a layer for the "
      "exchange, assumed)\n",
      result.tokens_per_second, result.all_experts_on_host, result.rates.gpu_read / kGiga,
      result.gpu_measured ? "measured" : "given or assumed", result.rates.host_read / kGiga,
      result.host_measured ? "measured" : "given", result.rates.exchange * 1e6);
}

nlohmann::json GpuPlan::json(const Outcome& result) {
  return {{"memory_bytes", result.memory},
          {"weight_bytes", result.weight_bytes},
          {"fits", result.fits},
          {"cpu_expert_bytes", result.host_bytes},
          {"expert_cache_bytes", result.copy_bytes},
          {"cpu_expert_layers", std::ranges::count(result.places, true)},
          {"tokens_per_second", result.tokens_per_second},
          {"tokens_per_second_cpu_moe", result.all_experts_on_host},
          {"gpu_bytes_per_second", result.rates.gpu_read},
          {"gpu_measured", result.gpu_measured},
          {"host_bytes_per_second", result.rates.host_read},
          {"host_measured", result.host_measured},
          {"pcie_bytes_per_second", result.rates.link},
          {"exchange_seconds", result.rates.exchange}};
}

}  // namespace penstock
