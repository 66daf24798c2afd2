#include "quantize/methods/scaling.h"

#include <algorithm>
#include <cmath>

#include "quantize/methods/strips.h"

namespace penstock {

namespace {

constexpr float kLeast = 1e-4f;

size_t find_part(const LayerValues& layer, Part part, bool bias, int expert) {
  for (size_t i = 0; i < layer.tensors->size(); ++i) {
    const MappedTensor& t = (*layer.tensors)[i];
    if (t.part == part && t.is_bias == bias && t.expert == expert) return i;
  }
  return SIZE_MAX;
}

void add_readers(const LayerValues& layer, ScalingSite& site, int expert) {
  for (size_t i = 0; i < layer.tensors->size(); ++i) {
    const MappedTensor& t = (*layer.tensors)[i];
    if (t.is_matrix && t.site == site.site && (expert < 0 || t.expert == expert))
      site.readers.push_back(i);
  }
}

// Adds a norm's weight and bias, or a matrix and its bias, as producers.
void add_producers(const LayerValues& layer, ScalingSite& site, Part part, int expert) {
  for (const bool bias : {false, true}) {
    const size_t found = find_part(layer, part, bias, expert);
    if (found != SIZE_MAX) site.producers.push_back(found);
  }
}

}  // namespace

std::vector<ScalingSite> scaling_sites(const ModelConfig& config, const LayerValues& layer) {
  std::vector<ScalingSite> sites;
  const auto add = [&](Site where, Part producer, int expert) {
    ScalingSite site;
    site.site = where;
    site.expert = expert;
    add_readers(layer, site, expert);
    add_producers(layer, site, producer, expert);
    if (!site.readers.empty() && !site.producers.empty()) sites.push_back(std::move(site));
  };
  // A norm that the feed-forward layer reads, too, cannot take attention's scales.
  if (!config.residual.parallel || config.residual.parallel_norms)
    add(Site::kAttention, Part::kAttentionNorm, -1);
  add(Site::kFeedForward, Part::kFeedForwardNorm, -1);
  if (config.norm.sub_norms) return sites;
  const size_t n_before = sites.size();
  // Attention mixes tokens, not channels: a scale of v's outputs passes through it. Fused qkv is
  // not scaled.
  add(Site::kAttentionOut, Part::kV, -1);
  if (sites.size() > n_before) {
    const auto index = static_cast<int>(layer.layer);
    sites.back().repeat = config.n_heads_of(index) / config.n_kv_heads_of(index);
    sites.back().head_dim = config.value_dim_of(index);
  }
  if (!config.ffn.gated) return sites;  // the activation is between up and down
  const LayerConfig& kind = config.layers[static_cast<size_t>(layer.layer)];
  const int n_experts = kind.moe ? config.experts.count : 0;
  // A bound of the product lies between up and down, too.
  const ActivationFunction f =
      n_experts > 0 ? kind.expert_activation.value_or(kind.activation) : kind.activation;
  if (f.kind == Activation::kBoundedSilu || f.kind == Activation::kClampedSilu ||
      f.kind == Activation::kCappedSilu || f.kind == Activation::kSoftCappedSilu)
    return sites;
  if (n_experts == 0) {
    if (find_part(layer, Part::kGateUp, false, -1) != SIZE_MAX) {
      add(Site::kDown, Part::kGateUp, -1);
      sites.back().producer_offset = config.ffn_dim;
    } else {
      add(Site::kDown, Part::kUp, -1);
    }
  }
  for (int e = 0; e < n_experts; ++e) add(Site::kDown, Part::kUp, e);
  return sites;
}

void share_repeated(const ScalingSite& site, std::vector<float>& s) {
  if (site.repeat <= 1) return;
  const auto dim = static_cast<size_t>(site.head_dim), repeat = static_cast<size_t>(site.repeat);
  for (size_t group = 0; group * repeat * dim < s.size(); ++group) {
    for (size_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (size_t h = 0; h < repeat; ++h) sum += std::log(s[(group * repeat + h) * dim + i]);
      const auto mean = static_cast<float>(std::exp(sum / static_cast<double>(repeat)));
      for (size_t h = 0; h < repeat; ++h) s[(group * repeat + h) * dim + i] = mean;
    }
  }
}

void fold_scale(const ModelConfig& config, const ScalingSite& site, const std::vector<float>& s,
                LayerValues& layer) {
  for (const size_t index : site.readers) {
    const MappedTensor& t = (*layer.tensors)[index];
    std::vector<float>& w = layer.values[index];
    for (int r = 0; r < t.rows; ++r) {
      for (int c = 0; c < t.cols; ++c)
        w[static_cast<size_t>(r) * static_cast<size_t>(t.cols) + static_cast<size_t>(c)] *=
            s[static_cast<size_t>(c)];
    }
    layer.changed[index] = true;
  }
  // Returns s of the producer's output i.
  const auto scale_of = [&](size_t i) {
    if (site.repeat <= 1) return s[i];
    const auto dim = static_cast<size_t>(site.head_dim);
    return s[i / dim * static_cast<size_t>(site.repeat) * dim + i % dim];
  };
  const size_t n = s.size() / static_cast<size_t>(site.repeat);
  for (const size_t index : site.producers) {
    const MappedTensor& t = (*layer.tensors)[index];
    std::vector<float>& w = layer.values[index];
    const bool is_norm = t.part == Part::kAttentionNorm || t.part == Part::kFeedForwardNorm;
    const float offset = is_norm && !t.is_bias ? config.norm.offset : 0.0f;
    const size_t width = t.is_matrix ? static_cast<size_t>(t.cols) : 1;
    for (size_t i = 0; i < n; ++i) {
      float* row = w.data() + (i + static_cast<size_t>(site.producer_offset)) * width;
      for (size_t c = 0; c < width; ++c) row[c] = (row[c] + offset) / scale_of(i) - offset;
    }
    layer.changed[index] = true;
  }
}

namespace {

// Returns mean|x|^alpha, normalized to a center of one.
std::vector<float> awq_scale(const ScalingSite& site, const ActivationStats& stats, double alpha) {
  std::vector<float> s(static_cast<size_t>(stats.cols), 1.0f);
  if (alpha == 0) return s;
  for (size_t j = 0; j < s.size(); ++j) {
    const double mean =
        stats.sum_abs[j] / static_cast<double>(std::max<int64_t>(stats.n_tokens, 1));
    s[j] = std::max(static_cast<float>(std::pow(mean, alpha)), kLeast);
  }
  const auto [low, high] = std::minmax_element(s.begin(), s.end());
  const float middle = std::sqrt(*low * *high);
  for (float& value : s) value /= middle;
  share_repeated(site, s);
  return s;
}

// Returns the output error of rounding scaled `values`, over every `stride`-th row.
double scaled_error(ThreadPool& pool, const GroupCoding& coding, const std::vector<float>& values,
                    int rows, int cols, const std::vector<float>& s, const QuadraticForm& form,
                    int stride) {
  constexpr int kLanes = QuadraticForm::kLanes;
  const int n = (rows + stride - 1) / stride, n_chunks = (n + kLanes - 1) / kLanes;
  std::vector<double> errors(static_cast<size_t>(n_chunks));
  pool.for_ranges(n_chunks, 1, [&](int64_t begin, int64_t end, int) {
    const auto width = static_cast<size_t>(cols);
    std::vector<float> scaled(width);
    std::vector<uint8_t> codes(width);
    std::vector<GroupScale> scales(static_cast<size_t>(cols / coding.group_of(cols)));
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      StripMatrix<float> difference(form.padded(), kLanes);
      for (int lane = 0; lane < kLanes && chunk * kLanes + lane < n; ++lane) {
        const float* row = values.data() + (chunk * kLanes + lane) * stride * cols;
        for (size_t j = 0; j < width; ++j) scaled[j] = row[j] * s[j];
        encode_grouped_row(coding, scaled.data(), nullptr, cols, false, codes.data(),
                           scales.data());
        for (size_t j = 0; j < width; ++j) {
          const GroupScale& scale = scales[j / static_cast<size_t>(coding.group_of(cols))];
          difference(static_cast<int>(j), lane) =
              decode_level(coding, scale, codes[j]) / s[j] - row[j];
        }
      }
      float sums[kLanes];
      form.evaluate(difference.at(0, 0), sums);
      for (const float sum : sums) errors[static_cast<size_t>(chunk)] += std::max(sum, 0.0f);
    }
  });
  double sum = 0;
  for (const double error : errors) sum += error;
  return sum;
}

}  // namespace

AwqChoice search_awq(ThreadPool& pool, const GroupCoding& coding, const ScalingSite& site,
                     const ActivationStats& stats, const LayerValues& layer) {
  constexpr int kSteps = 20, kSearchRows = 192;
  const QuadraticForm form(stats.hessian, 0, stats.cols);
  const auto error_at = [&](const std::vector<float>& s, bool all_rows) {
    double sum = 0;
    for (const size_t index : site.readers) {
      const MappedTensor& t = (*layer.tensors)[index];
      if (!t.is_linear) continue;  // routers keep their precision
      const int stride = all_rows ? 1 : std::max(1, t.rows / kSearchRows);
      sum +=
          stride * scaled_error(pool, coding, layer.values[index], t.rows, t.cols, s, form, stride);
    }
    return sum;
  };
  AwqChoice best;
  best.scale = awq_scale(site, stats, 0);
  double least = error_at(best.scale, false);
  for (int step = 1; step < kSteps; ++step) {
    const double alpha = static_cast<double>(step) / kSteps;
    std::vector<float> s = awq_scale(site, stats, alpha);
    const double error = error_at(s, false);
    if (!(error < least)) continue;
    least = error;
    best.alpha = alpha;
    best.scale = std::move(s);
  }
  const std::vector<float> ones(best.scale.size(), 1.0f);
  best.rounded_error = error_at(ones, true);
  best.error = best.alpha > 0 ? error_at(best.scale, true) : best.rounded_error;
  if (best.error > best.rounded_error) best = {0, ones, best.rounded_error, best.rounded_error};
  return best;
}

namespace {

// Returns for each of the 32 rows from `first_row` on the group scale of the range with the least
// error.
void clip_lanes(const GroupCoding& coding, const QuadraticForm& form, const float* values,
                int n_rows, int cols, int group, GroupScale* best) {
  constexpr int kSteps = 10, kLanes = QuadraticForm::kLanes;
  constexpr float kStep = 0.05f;
  std::vector<float> clipped(static_cast<size_t>(group));
  StripMatrix<float> difference(form.padded(), kLanes);
  GroupScale scales[kLanes];
  float least[kLanes], sums[kLanes];
  std::fill_n(least, kLanes, HUGE_VALF);
  for (int step = 0; step <= kSteps; ++step) {
    for (int r = 0; r < n_rows; ++r) {
      const float* x = values + static_cast<size_t>(r) * static_cast<size_t>(cols);
      float most = 0;
      for (int i = 0; i < group; ++i) most = std::max(most, std::fabs(x[i]));
      const float limit = most * (1.0f - kStep * static_cast<float>(step));
      for (int i = 0; i < group; ++i)
        clipped[static_cast<size_t>(i)] = std::clamp(x[i], -limit, limit);
      scales[r] = fit_group(coding, clipped.data(), nullptr, group, false);
      for (int i = 0; i < group; ++i)
        difference(i, r) =
            decode_level(coding, scales[r], nearest_code(coding, scales[r], x[i])) - x[i];
    }
    form.evaluate(difference.at(0, 0), sums);
    for (int r = 0; r < n_rows; ++r) {
      if (sums[r] < least[r]) least[r] = sums[r], best[r] = scales[r];
    }
  }
}

}  // namespace

GroupedCodes clip_groups(ThreadPool& pool, const GroupCoding& coding,
                         const std::vector<float>& values, int rows, int cols,
                         const Eigen::MatrixXf& hessian) {
  constexpr int kLanes = QuadraticForm::kLanes;
  const int group = coding.group_of(cols), n_groups = cols / group;
  GroupedCodes out{rows, cols, coding, {}, {}, {}};
  out.codes.resize(values.size());
  out.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(n_groups));
  for (int g = 0; g < n_groups; ++g) {
    const QuadraticForm form(hessian, g * group, group);
    pool.for_ranges((rows + kLanes - 1) / kLanes, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t first = begin * kLanes; first < std::min<int64_t>(end * kLanes, rows);
           first += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, rows - first));
        GroupScale best[kLanes];
        clip_lanes(coding, form, values.data() + first * cols + g * group, n, cols, group, best);
        for (int r = 0; r < n; ++r) {
          out.scales[static_cast<size_t>((first + r) * n_groups + g)] = best[r];
          for (int64_t i = (first + r) * cols + g * group, last = i + group; i < last; ++i)
            out.codes[static_cast<size_t>(i)] =
                nearest_code(coding, best[r], values[static_cast<size_t>(i)]);
        }
      }
    });
  }
  return out;
}

namespace {

// Rounds to 8 bits, with one scale per row or a static scale.
void round_rows(RowMatrix& x, float static_scale) {
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    const float most = x.row(t).cwiseAbs().maxCoeff();
    const float scale = static_scale > 0 ? static_scale : std::max(most, 1e-9f) / 127.0f;
    for (Eigen::Index j = 0; j < x.cols(); ++j)
      x(t, j) = std::clamp(std::nearbyint(x(t, j) / scale), -128.0f, 127.0f) * scale;
  }
}

std::vector<float> smooth_scale(const ScalingSite& site, const ActivationStats& stats,
                                const LayerValues& layer, double alpha) {
  std::vector<float> s(static_cast<size_t>(stats.cols), 1.0f), weight_max(s.size(), 1e-5f);
  for (const size_t index : site.readers) {
    const MappedTensor& t = (*layer.tensors)[index];
    for (size_t i = 0; i < layer.values[index].size(); ++i) {
      float& most = weight_max[i % static_cast<size_t>(t.cols)];
      most = std::max(most, std::fabs(layer.values[index][i]));
    }
  }
  for (size_t j = 0; j < s.size(); ++j) {
    const double x = std::max(stats.max_abs[j], 1e-5f);
    s[j] = static_cast<float>(std::clamp(
        std::pow(x, alpha) / std::pow(static_cast<double>(weight_max[j]), 1 - alpha), 1e-5, 1e5));
  }
  share_repeated(site, s);
  return s;
}

// Returns ||round(x / s) round(w s)^T - x w^T||^2 over the sample.
double smooth_error(ThreadPool& pool, const Recipe& recipe, const ScalingSite& site,
                    const ActivationStats& stats, const LayerValues& layer,
                    const std::vector<float>& s) {
  const Eigen::Map<const RowMatrix> x(stats.rows.data(), stats.n_rows(), stats.cols);
  RowMatrix rounded = x;
  float most = 0;
  for (int j = 0; j < stats.cols; ++j) {
    rounded.col(j) /= s[static_cast<size_t>(j)];
    most = std::max(most, stats.max_abs[static_cast<size_t>(j)] / s[static_cast<size_t>(j)]);
  }
  round_rows(rounded,
             recipe.activations == ActivationCoding::Kind::kInt8Static ? most / 127.0f : 0.0f);
  constexpr int kSearchRows = 192;
  double sum = 0;
  for (const size_t index : site.readers) {
    const MappedTensor& t = (*layer.tensors)[index];
    if (!t.is_linear) continue;
    const int stride = std::max(1, t.rows / kSearchRows), n = (t.rows + stride - 1) / stride;
    RowMatrix w(n, t.cols), q(n, t.cols);
    pool.for_ranges(n, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(t.cols));
      std::vector<uint8_t> codes(row.size());
      std::vector<GroupScale> scales(static_cast<size_t>(t.cols / recipe.coding.group_of(t.cols)));
      for (int64_t i = begin; i < end; ++i) {
        const float* from = layer.values[index].data() + i * stride * t.cols;
        for (int j = 0; j < t.cols; ++j)
          row[static_cast<size_t>(j)] = from[j] * s[static_cast<size_t>(j)];
        encode_grouped_row(recipe.coding, row.data(), nullptr, t.cols, false, codes.data(),
                           scales.data());
        for (int j = 0; j < t.cols; ++j) {
          w(i, j) = from[j];
          q(i, j) = decode_level(recipe.coding,
                                 scales[static_cast<size_t>(j / recipe.coding.group_of(t.cols))],
                                 codes[static_cast<size_t>(j)]);
        }
      }
    });
    sum +=
        stride * static_cast<double>((rounded * q.transpose() - x * w.transpose()).squaredNorm());
  }
  return sum;
}

}  // namespace

SmoothChoice search_smoothing(ThreadPool& pool, const Recipe& recipe, const ScalingSite& site,
                              const ActivationStats& stats, const LayerValues& layer) {
  if (recipe.smoothing >= 0)
    return {recipe.smoothing, smooth_scale(site, stats, layer, recipe.smoothing)};
  SmoothChoice best{0, std::vector<float>(static_cast<size_t>(stats.cols), 1.0f)};
  double least = smooth_error(pool, recipe, site, stats, layer, best.scale);
  for (const double alpha : {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}) {
    std::vector<float> s = smooth_scale(site, stats, layer, alpha);
    const double error = smooth_error(pool, recipe, site, stats, layer, s);
    if (!(error < least)) continue;
    least = error;
    best = {alpha, std::move(s)};
  }
  return best;
}

}  // namespace penstock
