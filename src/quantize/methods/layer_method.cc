#include "quantize/methods/layer_method.h"

#include <algorithm>

#include <cmath>
#include <map>
#include <unordered_map>

#include <spdlog/spdlog.h>

#include "base/log.h"
#include "base/regular_file.h"

#include "quantize/methods/gptq.h"
#include "quantize/methods/layer_runner.h"
#include "quantize/methods/scaling.h"

namespace penstock {

namespace fs = std::filesystem;

namespace {

using SiteKey = std::pair<Site, int>;  // expert -1: all tokens
using SiteStats = std::map<SiteKey, ActivationStats>;

constexpr Site kSites[] = {Site::kAttention, Site::kAttentionOut, Site::kFeedForward, Site::kDown};

// Runs the loaded layer and collects statistics of the inputs of linear layers at these sites.
Result<SiteStats> collect(LayerRunner& runner, ThreadPool& pool,
                          const std::vector<MappedTensor>& tensors, std::span<const Site> sites,
                          bool with_hessian, const ObservingOps::Pass& pass = {}) {
  SiteStats stats;
  std::unordered_map<const Weight*, SiteKey> keys;
  for (const MappedTensor& t : tensors) {
    if (!t.is_matrix || std::ranges::find(sites, t.site) == std::end(sites)) continue;
    const SiteKey key{t.site, t.expert};
    if (!stats.emplace(key, ActivationStats{}).second) continue;  // one layer per input suffices
    keys.emplace(runner.weights_of(t)[0]->get(), key);
  }
  const int64_t n_tokens = runner.n_tokens();
  const ModelConfig& config = runner.config();
  runner.ops().listen([&](const Weight& weight, Tensor x, Tensor) {
    const auto found = keys.find(&weight);
    if (found == keys.end()) return;
    const bool expert = found->second.second >= 0;
    const int64_t expected =
        expert ? n_tokens * config.experts.routing.n_active / config.experts.count + 1 : n_tokens;
    stats[found->second].add(pool, x, with_hessian, expected);
  });
  const Status ran = runner.run(false, pass);
  runner.ops().listen({});
  RETURN_IF_ERROR(ran);
  for (auto& [key, one] : stats) one.finish();
  return stats;
}

class Calibrated final : public LayerMethod {
 public:
  Calibrated(const MethodContext& context, std::unique_ptr<LayerRunner> runner)
      : context_(context), recipe_(context.recipe), runner_(std::move(runner)) {}

  Status process(LayerValues& layer, bool done) override {
    if (done) return restore(layer.layer);
    RETURN_IF_ERROR(runner_->load(layer.layer));
    // The weights are replaced by their F32 values, since the backend might keep them in another
    // encoding.
    for (size_t i = 0; i < layer.values.size(); ++i)
      RETURN_IF_ERROR(runner_->replace(tensor(layer, i), layer.values[i]));
    switch (recipe_.method) {
      case Method::kGptq: RETURN_IF_ERROR(process_gptq(layer)); break;
      case Method::kAwq: RETURN_IF_ERROR(process_awq(layer)); break;
      default: RETURN_IF_ERROR(process_activations(layer)); break;
    }
    ObservingOps::Pass last;
    if (recipe_.method == Method::kGptq) last.first = pass_of(Site::kDown, layer.layer).first;
    RETURN_IF_ERROR(runner_->run(true, last));
    runner_->ops().forget();
    return save(layer.layer);
  }

 private:
  static const MappedTensor& tensor(const LayerValues& layer, size_t i) {
    return (*layer.tensors)[i];
  }

  fs::path stream_path(int layer) const { return context_.parts.state_path(layer); }

  // Saves the streams of the last two finished layers, for resuming.
  Status save(int layer) {
    const std::vector<float>& stream = runner_->stream();
    RETURN_IF_ERROR(write_file(stream_path(layer), std::as_bytes(std::span(stream))));
    std::error_code ignored;
    fs::remove(stream_path(layer - 2), ignored);
    return {};
  }

  Status restore(int layer) {
    std::error_code error;
    // an earlier layer: the state of a later one was saved
    if (!fs::exists(stream_path(layer), error)) return {};
    std::vector<float>& stream = runner_->stream();
    ASSIGN_OR_RETURN(FileDescriptor opened, open_regular_file(stream_path(layer)));
    FileStream file(std::move(opened));
    const auto bytes = static_cast<std::streamsize>(stream.size() * sizeof(float));
    file.read(reinterpret_cast<char*>(stream.data()), bytes);
    if (file.gcount() == bytes) return {};
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes, got {}",
                  stream_path(layer).string(), bytes, file.gcount());
  }

  // Returns the values with which the quantized layer will compute.
  std::vector<float> rounded(const LayerValues& layer, size_t i) const {
    const MappedTensor& t = tensor(layer, i);
    std::vector<float> out = layer.values[i];
    const LinearDecision& decision = layer.decisions[i];
    if (decision.codes) {
      context_.pool.for_ranges(t.rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r)
          decision.codes->dequantize_row(static_cast<int>(r), out.data() + r * t.cols);
      });
      return out;
    }
    if (recipe_.layout != Layout::kGguf) {
      if (!t.is_linear || recipe_.layout == Layout::kBitNet || recipe_.layout == Layout::kPlain)
        return out;
      const auto codes = round_to_nearest(context_.pool, recipe_.coding, out, t.rows, t.cols,
                                          nullptr, recipe_.search);
      context_.pool.for_ranges(t.rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r)
          codes->dequantize_row(static_cast<int>(r), out.data() + r * t.cols);
      });
      return out;
    }
    const QuantType type = plain_type(recipe_, t, context_.reader.type(t), context_.map);
    const float* importance = decision.importance.empty() ? nullptr : decision.importance.data();
    if (quant_info(type).block_size == 1) importance = nullptr;
    context_.pool.for_ranges(t.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<std::byte> bytes(quant_bytes(type, t.cols));
      for (int64_t r = begin; r < end; ++r) {
        quantize_row(type, out.data() + r * t.cols, bytes.data(), t.cols, importance);
        dequantize_row(type, bytes.data(), out.data() + r * t.cols, t.cols);
      }
    });
    return out;
  }

  Status replace_rounded(const LayerValues& layer, size_t i) {
    return runner_->replace(tensor(layer, i),
                            tensor(layer, i).is_matrix ? rounded(layer, i) : layer.values[i]);
  }

  Status check_group(const MappedTensor& t) const {
    const int group = recipe_.coding.group_of(t.cols);
    if (t.cols % group == 0) return {};
    return errorf(ErrorCode::kInvalidArgument,
                  "tensor {}: --group-size: expected a divisor of its {} inputs, got {}", t.in,
                  t.cols, group);
  }

  // Plans the pass that observes a site. Products of a step: q k v, attention, o, gate and up (or
  // router), down (or experts). A site's inputs are complete when the product that reads them is
  // reached; earlier products are recorded and not computed again.
  ObservingOps::Pass pass_of(Site site, int layer) const {
    constexpr int kQkv = 0, kAttention = 1, kO = 2, kGateUp = 3, kDown = 4;
    constexpr int64_t kMostRecorded = int64_t{1} << 30;
    const ModelConfig& config = runner_->config();
    const bool moe = config.layers[static_cast<size_t>(layer)].moe;
    const int64_t gate_up_bytes = int64_t{8} * runner_->n_tokens() * config.ffn_dim;
    ObservingOps::Pass pass;
    switch (site) {
      case Site::kAttention: pass.stop = kQkv; break;
      case Site::kAttentionOut:
        pass.stop = kO;
        pass.record_first = pass.record_last = kAttention;
        break;
      case Site::kFeedForward:
        pass.first = kAttention;
        pass.record_first = pass.record_last = kO;
        if (!moe) pass.stop = kGateUp;
        break;
      default:
        pass.first = kO;
        if (moe) break;
        pass.stop = kDown;
        if (gate_up_bytes <= kMostRecorded) pass.record_first = pass.record_last = kGateUp;
        break;
    }
    return pass;
  }

  // Returns a pass that observes all sites.
  ObservingOps::Pass before_down(int layer) const {
    ObservingOps::Pass pass;
    pass.stop = pass_of(Site::kDown, layer).stop;
    return pass;
  }

  // Processes site by site: each sees the effect of the quantized sites before it.
  Status process_gptq(LayerValues& layer) {
    runner_->ops().forget();
    const GptqOptions options{recipe_.coding, recipe_.act_order, recipe_.damping};
    double error = 0, nearest = 0;
    for (const Site site : kSites) {
      ASSIGN_OR_RETURN(const SiteStats stats,
                       collect(*runner_, context_.pool, *layer.tensors, {&site, 1}, true,
                               pass_of(site, layer.layer)));
      for (size_t i = 0; i < layer.tensors->size(); ++i) {
        const MappedTensor& t = tensor(layer, i);
        if (!t.is_linear || t.site != site) continue;
        const ActivationStats& seen = stats.at({site, t.expert});
        if (recipe_.layout == Layout::kGguf && t.cols % 32 != 0) continue;
        RETURN_IF_ERROR(check_group(t));
        if (seen.n_tokens == 0) {
          log().warn("{}: no token of the calibration text reached it: rounded to nearest", t.in);
          continue;
        }
        GptqResult result =
            gptq(context_.pool, options, layer.values[i], t.rows, t.cols, seen.hessian);
        error += result.error;
        nearest += result.rounded_error;
        layer.decisions[i].codes = std::move(result.codes);
        RETURN_IF_ERROR(replace_rounded(layer, i));
      }
    }
    log().info("layer {}: output error {:.3f} of round-to-nearest's", layer.layer,
               nearest > 0 ? error / nearest : 1.0);
    return {};
  }

  // Returns a coding similar to the type's, for the search.
  GroupCoding search_coding() const {
    if (recipe_.layout != Layout::kGguf) return recipe_.coding;
    GroupCoding coding;
    coding.group_size = 32;
    switch (recipe_.ftype.base) {
      case QuantType::kQ2_K:
        coding.bits = 2, coding.symmetric = false, coding.group_size = 16;
        break;
      case QuantType::kQ3_K: coding.bits = 3, coding.group_size = 16; break;
      case QuantType::kQ4_K:
      case QuantType::kQ4_1: coding.symmetric = false; break;
      case QuantType::kQ5_K:
      case QuantType::kQ5_1: coding.bits = 5, coding.symmetric = false; break;
      case QuantType::kQ5_0: coding.bits = 5; break;
      case QuantType::kQ6_K: coding.bits = 6, coding.group_size = 16; break;
      case QuantType::kQ8_0: coding.bits = 8; break;
      default: break;
    }
    return coding;
  }

  Status process_awq(LayerValues& layer) {
    ASSIGN_OR_RETURN(SiteStats stats, collect(*runner_, context_.pool, *layer.tensors, kSites, true,
                                              before_down(layer.layer)));
    const GroupCoding coding = search_coding();
    double error = 0, nearest = 0;
    for (const ScalingSite& site : scaling_sites(runner_->config(), layer)) {
      const auto found = stats.find({site.site, site.expert});
      if (found == stats.end() || found->second.n_tokens == 0) continue;
      const MappedTensor& first = tensor(layer, site.readers[0]);
      if (first.cols % coding.group_of(first.cols) != 0) {
        if (recipe_.layout == Layout::kGguf) continue;
        RETURN_IF_ERROR(check_group(first));
      }
      const AwqChoice choice = search_awq(context_.pool, coding, site, found->second, layer);
      error += choice.error;
      nearest += choice.rounded_error;
      if (choice.alpha == 0) continue;
      fold_scale(runner_->config(), site, choice.scale, layer);
      // Inputs of the experts are those of all tokens, so they get the same scale.
      for (auto& [key, one] : stats) {
        if (key.first == site.site && (site.expert < 0 || key.second == site.expert))
          divide(one, choice.scale);
      }
    }
    log().info("layer {}: output error {:.3f} of round-to-nearest's", layer.layer,
               nearest > 0 ? error / nearest : 1.0);
    for (size_t i = 0; i < layer.tensors->size(); ++i) {
      const MappedTensor& t = tensor(layer, i);
      const bool clipped = recipe_.clip && recipe_.layout != Layout::kGguf && t.is_linear &&
                           t.part != Part::kQ && t.part != Part::kK && t.part != Part::kQkv;
      const auto seen = stats.find({t.site, t.expert});
      if (clipped && seen != stats.end() && seen->second.n_tokens > 0) {
        RETURN_IF_ERROR(check_group(t));
        layer.decisions[i].codes = clip_groups(context_.pool, recipe_.coding, layer.values[i],
                                               t.rows, t.cols, seen->second.hessian);
      }
      RETURN_IF_ERROR(replace_rounded(layer, i));
    }
    return {};
  }

  static void divide(ActivationStats& stats, const std::vector<float>& s) {
    if (stats.cols == 0) return;
    for (size_t j = 0; j < s.size(); ++j) {
      stats.max_abs[j] /= s[j];
      stats.sum_abs[j] /= s[j];
      stats.sum_squares[j] /= s[j] * s[j];
    }
    const Eigen::Map<const Eigen::VectorXf> scale(s.data(), static_cast<Eigen::Index>(s.size()));
    const Eigen::VectorXf inverse = scale.cwiseInverse();
    if (stats.hessian.size() > 0)
      stats.hessian = inverse.asDiagonal() * stats.hessian * inverse.asDiagonal();
  }

  // SmoothQuant, scales of static activations, and importance for rounding to nearest.
  Status process_activations(LayerValues& layer) {
    ASSIGN_OR_RETURN(SiteStats stats, collect(*runner_, context_.pool, *layer.tensors, kSites,
                                              false, before_down(layer.layer)));
    if (recipe_.method == Method::kSmoothQuant) {
      for (const ScalingSite& site : scaling_sites(runner_->config(), layer)) {
        const auto found = stats.find({site.site, site.expert});
        if (found == stats.end() || found->second.n_tokens == 0) continue;
        const SmoothChoice choice =
            search_smoothing(context_.pool, recipe_, site, found->second, layer);
        if (choice.alpha == 0 && recipe_.smoothing < 0) continue;
        fold_scale(runner_->config(), site, choice.scale, layer);
        for (auto& [key, one] : stats) {
          if (key.first == site.site && (site.expert < 0 || key.second == site.expert))
            divide(one, choice.scale);
        }
      }
    }
    for (size_t i = 0; i < layer.tensors->size(); ++i) {
      const MappedTensor& t = tensor(layer, i);
      const auto seen = stats.find({t.site, t.expert});
      if (t.is_linear && seen != stats.end() && seen->second.n_tokens > 0) {
        const std::vector<float>& most = seen->second.max_abs;
        layer.decisions[i].activation_scale =
            std::max(*std::ranges::max_element(most), 1e-9f) / 127.0f;
        if (recipe_.method == Method::kRtn && recipe_.activations == ActivationCoding::Kind::kNone)
          layer.decisions[i].importance = seen->second.mean_squares();
      }
      RETURN_IF_ERROR(replace_rounded(layer, i));
    }
    return {};
  }

  const MethodContext context_;
  const Recipe& recipe_;
  std::unique_ptr<LayerRunner> runner_;
};

}  // namespace

Result<std::unique_ptr<LayerMethod>> make_layer_method(const MethodContext& context) {
  if (context.job.samples.empty()) return nullptr;
  const RunnerOptions options{context.job.threads, true};
  ASSIGN_OR_RETURN(auto runner, LayerRunner::open(context.source, options, context.job.samples));
  return std::make_unique<Calibrated>(context, std::move(runner));
}

Result<ImportanceMatrix> measure_importance(const QuantizeJob& job) {
  ASSIGN_OR_RETURN(const auto source, open_weights(job.in));
  ASSIGN_OR_RETURN(const auto runner, LayerRunner::open(*source, {job.threads, true}, job.samples));
  ASSIGN_OR_RETURN(const TensorMap map, map_tensors(*source, runner->config(), Naming::kGguf));
  ThreadPool pool(job.threads);
  ImportanceMatrix matrix;
  matrix.n_chunks = static_cast<int>(job.samples.size());
  for (const auto& sample : job.samples)
    matrix.chunk_size = std::max(matrix.chunk_size, static_cast<int>(sample.size()));
  const int n_layers = static_cast<int>(map.layers.size());
  for (int i = 0; i < n_layers; ++i) {
    if (job.should_stop && job.should_stop())
      return make_error(ErrorCode::kCancelled, "interrupted");
    if (job.progress) job.progress(i, n_layers, fmt::format("layer {}", i));
    const std::vector<MappedTensor>& tensors = map.layers[static_cast<size_t>(i)];
    RETURN_IF_ERROR(runner->load(i));
    ASSIGN_OR_RETURN(const SiteStats stats, collect(*runner, pool, tensors, kSites, false));
    for (const MappedTensor& t : tensors) {
      const auto found = stats.find({t.site, t.expert});
      if (!t.is_linear || found == stats.end()) continue;
      const ActivationStats& seen = found->second;
      std::vector<float> means =
          seen.n_tokens > 0 ? seen.mean_squares() : std::vector<float>(static_cast<size_t>(t.cols));
      matrix.add(t.out, t.expert, std::move(means), static_cast<double>(seen.n_tokens));
    }
    RETURN_IF_ERROR(runner->run(true));
  }
  return matrix;
}

}  // namespace penstock
