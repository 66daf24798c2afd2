#include "quantize/methods/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quantize/methods/strips.h"

namespace penstock {

namespace {

constexpr int kLanes = kStripFloats;  // outputs that are rounded in parallel

// Positions of inputs in the order of rounding. Groups that are fitted together begin at multiples
// of 8; unused positions are padding.
struct Places {
  std::vector<int32_t> order;  // [cols] inputs in the order of rounding
  std::vector<int32_t> place;  // [cols] position of order[i]
  int n = 0;                   // number of positions, a multiple of 32
  int group = 0;               // positions per group; 0: groups are fixed in advance
};

Places make_places(const GptqOptions& options, int cols, const Eigen::MatrixXf& hessian) {
  Places places;
  places.order.resize(static_cast<size_t>(cols));
  std::iota(places.order.begin(), places.order.end(), 0);
  if (options.act_order != ActOrder::kNone) {
    std::stable_sort(places.order.begin(), places.order.end(),
                     [&](int32_t a, int32_t b) { return hessian(a, a) > hessian(b, b); });
  }
  const int group = options.coding.group_of(cols);
  if (options.act_order != ActOrder::kStatic)
    places.group = (group + kStripRows - 1) / kStripRows * kStripRows;
  int end = 0;
  for (int i = 0; i < cols; ++i) {
    places.place.push_back(places.group > 0 ? i / group * places.group + i % group : i);
    end = places.place.back() + 1;
  }
  places.n = (std::max(end, cols / group * places.group) + kLanes - 1) / kLanes * kLanes;
  return places;
}

// Upper triangular V with V V^T = H (damped), by positions, and the damping added to the diagonal:
// the output error of a difference d is |d V|^2 - sum of added_j d_j^2. With the reversal J of
// positions, J H J = R^T R gives V = J R^T J.
struct Factor {
  StripMatrix<float> v;
  std::vector<double> added;  // [positions]
};

Factor factor_of(ThreadPool& pool, const Eigen::MatrixXf& hessian, const Places& places,
                 double damping) {
  const int n = places.n, cols = static_cast<int>(places.order.size());
  double mean = 0;
  for (int i = 0; i < cols; ++i) mean += hessian(i, i) / cols;
  Factor factor{StripMatrix<float>(n, n), std::vector<double>(static_cast<size_t>(n))};
  const auto input = [&](int i) { return places.order[static_cast<size_t>(i)]; };
  const auto place = [&](int i) { return places.place[static_cast<size_t>(i)]; };
  for (double share = std::max(damping, 1e-8); mean > 0 && share < 1e6; share *= 10) {
    StripMatrix<double> r(n, n);
    for (int p = 0; p < n; ++p) r(n - 1 - p, n - 1 - p) = 1;
    pool.for_ranges(cols, 1, [&](int64_t begin, int64_t end, int) {
      for (int i = static_cast<int>(begin); i < end; ++i) {
        const int row = n - 1 - place(i);
        for (int j = 0; j < i; ++j) r(row, n - 1 - place(j)) = hessian(input(j), input(i));
        const double own = hessian(input(i), input(i));
        const double added = share * mean + (own > 0 ? 0 : mean);  // a dead input: always zero
        factor.added[static_cast<size_t>(place(i))] = added;
        r(row, row) = own + added;
      }
    });
    if (!cholesky(pool, r)) continue;
    pool.for_ranges(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int i = static_cast<int>(begin); i < end; ++i) {
        for (int j = i; j < n; ++j) factor.v(i, j) = static_cast<float>(r(n - 1 - j, n - 1 - i));
      }
    });
    return factor;
  }
  for (int p = 0; p < n; ++p) factor.v(p, p) = 1;
  std::fill(factor.added.begin(), factor.added.end(), mean > 0 ? 0.0 : 1.0);
  return factor;
}

// Rounds 32 outputs. With the differences d of inputs rounded so far, the error is least if (d V)_j
// is zero for the next input j: if its value is w_j + (sum over i < j of d_i V_ij) / V_jj, which is
// then rounded. The output error is the sum of the squares of (d V)_j.
class RowChunk {
 public:
  RowChunk(const GptqOptions& options, const Factor& factor, const Places& places,
           const std::vector<float>& importance, GroupedCodes& out)
      : options_(options),
        v_(factor.v),
        factor_(factor),
        places_(places),
        importance_(importance),
        out_(out),
        w_(places.n, kLanes),
        d_(places.n, kLanes),
        base_(places.n, kLanes),
        sums_(kLanes, kLanes),
        nearest_{kLanes, out.cols, out.coding, {}, {}, {}} {
    nearest_.codes.resize(static_cast<size_t>(kLanes) * static_cast<size_t>(out.cols));
    nearest_.scales.resize(static_cast<size_t>(kLanes) * static_cast<size_t>(out.n_groups()));
    chosen_ = nearest_;
    input_.assign(static_cast<size_t>(places.n), -1);
    for (size_t i = 0; i < places.order.size(); ++i)
      input_[static_cast<size_t>(places.place[i])] = places.order[i];
    group_.resize(static_cast<size_t>(out.coding.group_of(out.cols)));
    weights_.resize(group_.size());
  }

  void run(const float* values, int first_row, int n_rows) {
    values_ = values;
    n_rows_ = n_rows;
    for (int p = 0; p < places_.n; ++p) {
      const int input = input_[static_cast<size_t>(p)];
      for (int r = 0; r < kLanes; ++r) w_(p, r) = input >= 0 && r < n_rows ? value(r, input) : 0.0f;
    }
    double errors[kLanes], rounded_errors[kLanes];
    round_to_nearest();
    differences_of(nearest_);
    sweep(0, places_.n, Mode::kMeasure);
    finish_errors(rounded_errors);
    if (options_.act_order == ActOrder::kStatic) fit_static();
    const int step = places_.group > 0 ? places_.group : places_.n;
    for (int begin = 0; begin < places_.n; begin += step) {
      const int end = std::min(begin + step, places_.n);
      prepare(begin, end);
      if (places_.group > 0 && input_[static_cast<size_t>(begin)] >= 0) {
        if (begin > 0) sweep(begin, end, Mode::kFollow);
        fit_group_at(begin, begin > 0);
      }
      sweep(begin, end, Mode::kRound);
    }
    finish_errors(errors);
    keep(first_row, errors, rounded_errors);
  }

  double error = 0, rounded_error = 0;
  int n_rounded_rows = 0;

 private:
  // Treatment of an input in a sweep: its difference is given; it takes the ideal value unrounded;
  // it is rounded.
  enum class Mode { kMeasure, kFollow, kRound };

  float value(int r, int input) const {
    return values_[static_cast<size_t>(r) * static_cast<size_t>(out_.cols) +
                   static_cast<size_t>(input)];
  }
  GroupScale& scale(GroupedCodes& codes, int r, int group) const {
    return codes.scales[static_cast<size_t>(r) * static_cast<size_t>(out_.n_groups()) +
                        static_cast<size_t>(group)];
  }
  uint8_t& code(GroupedCodes& codes, int r, int input) const {
    return codes.codes[static_cast<size_t>(r) * static_cast<size_t>(out_.cols) +
                       static_cast<size_t>(input)];
  }

  // Computes sums over positions before `begin`, for all of [begin, end); sweep() adds the later
  // terms.
  void prepare(int begin, int end) {
    std::fill_n(base_.at(0, 0), (end - begin) * kLanes, 0.0f);
    for (int p = begin; begin > 0 && p < end; p += kStripRows)
      strip_kernels().add_f32(begin, v_.at(0, p), d_.at(0, 0), base_.at(p - begin, 0));
  }

  void sweep(int begin, int end, Mode mode) {
    const StripKernels& kernels = strip_kernels();
    if (mode == Mode::kMeasure) prepare(begin, end), std::fill(squares_, squares_ + kLanes, 0.0);
    for (int block = begin; block < end; block += kLanes) {
      const int stop = std::min(block + kLanes, end);
      std::copy_n(base_.at(block - begin, 0), (stop - block) * kLanes, sums_.at(0, 0));
      for (int p = block; p < stop; p += kStripRows)
        kernels.add_f32(block - begin, v_.at(begin, p), d_.at(begin, 0), sums_.at(p - block, 0));
      for (int p = block; p < stop; p += kStripRows) {
        kernels.add_f32(p - block, v_.at(block, p), d_.at(block, 0), sums_.at(p - block, 0));
        for (int j = p; j < p + kStripRows; ++j) {
          float* sum = sums_.at(j - block, 0);
          for (int i = p; i < j; ++i) {
            const float factor = v_(i, j);
            const float* d = d_.at(i, 0);
            for (int r = 0; r < kLanes; ++r) sum[r] += factor * d[r];
          }
          step(j, sum, mode);
        }
      }
    }
  }

  void step(int j, const float* sum, Mode mode) {
    const float own = v_(j, j), inverse = 1.0f / own;
    float* d = d_.at(j, 0);
    if (input_[static_cast<size_t>(j)] < 0) {
      std::fill_n(d, kLanes, 0.0f);
      return;
    }
    if (mode == Mode::kFollow) {
      for (int r = 0; r < kLanes; ++r) d[r] = -sum[r] * inverse;
      return;
    }
    if (mode == Mode::kRound) round(j, sum, inverse);
    const double added = factor_.added[static_cast<size_t>(j)];
    for (int r = 0; r < kLanes; ++r) {
      const double left = sum[r] + own * d[r];
      squares_[r] += left * left - added * static_cast<double>(d[r]) * d[r];
    }
  }

  void round(int j, const float* sum, float inverse) {
    const int input = input_[static_cast<size_t>(j)], group = out_.group(input);
    const float* w = w_.at(j, 0);
    float* d = d_.at(j, 0);
    float target[kLanes], scales[kLanes], low[kLanes], high[kLanes];
    for (int r = 0; r < kLanes; ++r) target[r] = w[r] + sum[r] * inverse;
    if (!out_.coding.codebook.empty()) {
      for (int r = 0; r < kLanes; ++r) {
        const GroupScale& s = scale(chosen_, r, group);
        const uint8_t chosen = code(chosen_, r, input) = nearest_code(out_.coding, s, target[r]);
        d[r] = w[r] - decode_level(out_.coding, s, chosen);
      }
      return;
    }
    for (int r = 0; r < kLanes; ++r) {
      const GroupScale& s = scale(chosen_, r, group);
      scales[r] = s.scale;
      low[r] = static_cast<float>(-s.zero);
      high[r] = static_cast<float>(out_.coding.top() - s.zero);
    }
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it drops the fraction
    float levels[kLanes];
    for (int r = 0; r < kLanes; ++r) {
      float level = target[r] / scales[r];
      level = level > low[r] ? level : low[r];
      level = level < high[r] ? level : high[r];
      levels[r] = level + kShift - kShift;
      d[r] = w[r] - scales[r] * levels[r];
    }
    for (int r = 0; r < kLanes; ++r)
      code(chosen_, r, input) = static_cast<uint8_t>(levels[r] - low[r]);
  }

  // Fits groups in the original order of inputs, from the original weights.
  void fit_static() {
    const int group = out_.coding.group_of(out_.cols);
    for (int r = 0; r < n_rows_; ++r) {
      for (int g = 0; g < out_.n_groups(); ++g) {
        const float* x =
            values_ + static_cast<size_t>(r) * static_cast<size_t>(out_.cols) + g * group;
        scale(chosen_, r, g) =
            fit_group(out_.coding, x, importance_.data() + g * group, group, true);
      }
    }
  }

  // Fits the group at these positions, from the weights as compensated so far.
  void fit_group_at(int begin, bool followed) {
    for (int r = 0; r < n_rows_; ++r) {
      for (size_t i = 0; i < group_.size(); ++i) {
        const int p = begin + static_cast<int>(i);
        group_[i] = w_(p, r) - (followed ? d_(p, r) : 0.0f);
        weights_[i] = importance_[static_cast<size_t>(input_[static_cast<size_t>(p)])];
      }
      scale(chosen_, r, begin / places_.group) = fit_group(
          out_.coding, group_.data(), weights_.data(), static_cast<int>(group_.size()), true);
    }
  }

  void round_to_nearest() {
    const int group = out_.coding.group_of(out_.cols);
    for (int r = 0; r < n_rows_; ++r) {
      for (int g = 0; g < out_.n_groups(); ++g) {
        const auto input = [&](int i) {
          return out_.group_of_input.empty() ? g * group + i
                                             : places_.order[static_cast<size_t>(g * group + i)];
        };
        for (int i = 0; i < group; ++i) group_[static_cast<size_t>(i)] = value(r, input(i));
        const GroupScale s = fit_group(out_.coding, group_.data(), nullptr, group, false);
        scale(nearest_, r, g) = s;
        for (int i = 0; i < group; ++i)
          code(nearest_, r, input(i)) =
              nearest_code(out_.coding, s, group_[static_cast<size_t>(i)]);
      }
    }
  }

  void differences_of(GroupedCodes& codes) {
    for (int p = 0; p < places_.n; ++p) {
      const int input = input_[static_cast<size_t>(p)];
      for (int r = 0; r < kLanes; ++r) {
        const bool used = input >= 0 && r < n_rows_;
        d_(p, r) = used ? w_(p, r) - decode_level(out_.coding, scale(codes, r, out_.group(input)),
                                                  code(codes, r, input))
                        : 0;
      }
    }
  }

  void finish_errors(double* errors) {
    for (int r = 0; r < kLanes; ++r) errors[r] = std::max(0.0, squares_[r]), squares_[r] = 0;
  }

  // Keeps each output's codes, or those of rounding to nearest if their error is smaller.
  void keep(int first_row, const double* errors, const double* rounded_errors) {
    const auto n_groups = static_cast<size_t>(out_.n_groups()),
               cols = static_cast<size_t>(out_.cols);
    for (int r = 0; r < n_rows_; ++r) {
      const bool worse = !(errors[r] <= rounded_errors[r]);
      const GroupedCodes& from = worse ? nearest_ : chosen_;
      const auto row = static_cast<size_t>(r), to = static_cast<size_t>(first_row + r);
      std::copy_n(from.codes.begin() + static_cast<ptrdiff_t>(row * cols), cols,
                  out_.codes.begin() + static_cast<ptrdiff_t>(to * cols));
      std::copy_n(from.scales.begin() + static_cast<ptrdiff_t>(row * n_groups), n_groups,
                  out_.scales.begin() + static_cast<ptrdiff_t>(to * n_groups));
      rounded_error += rounded_errors[r];
      error += worse ? rounded_errors[r] : errors[r];
      n_rounded_rows += worse ? 1 : 0;
    }
  }

  const GptqOptions& options_;
  const StripMatrix<float>& v_;
  const Factor& factor_;
  const Places& places_;
  const std::vector<float>& importance_;  // the Hessian's diagonal
  GroupedCodes& out_;
  StripMatrix<float> w_, d_, base_;  // [positions, 32]: weights, differences, sums before a range
  StripMatrix<float> sums_;          // [32, 32], of the current positions
  GroupedCodes nearest_, chosen_;    // of the 32 outputs
  std::vector<int32_t> input_;       // input at each position; -1: padding
  std::vector<float> group_, weights_;
  double squares_[kLanes] = {};
  const float* values_ = nullptr;
  int n_rows_ = 0;
};

}  // namespace

GptqResult gptq(ThreadPool& pool, const GptqOptions& options, const std::vector<float>& values,
                int rows, int cols, const Eigen::MatrixXf& hessian) {
  GptqResult result;
  GroupedCodes& codes = result.codes;
  codes.rows = rows;
  codes.cols = cols;
  codes.coding = options.coding;
  const Places places = make_places(options, cols, hessian);
  if (options.act_order == ActOrder::kGroup) {
    codes.group_of_input.resize(places.order.size());
    for (size_t i = 0; i < places.order.size(); ++i)
      codes.group_of_input[static_cast<size_t>(places.order[i])] =
          static_cast<int32_t>(i) / options.coding.group_of(cols);
  }
  const Factor factor = factor_of(pool, hessian, places, options.damping);
  std::vector<float> importance(static_cast<size_t>(cols));
  double mean = 0;
  for (int j = 0; j < cols; ++j) mean += hessian(j, j) / cols;
  for (int j = 0; j < cols; ++j)
    importance[static_cast<size_t>(j)] =
        static_cast<float>(hessian(j, j) + options.damping * mean + 1e-30);
  codes.codes.resize(values.size());
  codes.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(codes.n_groups()));
  std::vector<GptqResult> parts(static_cast<size_t>(pool.size()));
  pool.for_ranges(rows, kLanes, [&](int64_t begin, int64_t end, int worker) {
    RowChunk chunk(options, factor, places, importance, codes);
    for (int64_t first = begin; first < end; first += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, end - first));
      chunk.run(values.data() + first * cols, static_cast<int>(first), n);
    }
    GptqResult& part = parts[static_cast<size_t>(worker)];
    part.error = chunk.error;
    part.rounded_error = chunk.rounded_error;
    part.n_rounded_rows = chunk.n_rounded_rows;
  });
  for (const GptqResult& part : parts) {
    result.error += part.error;
    result.rounded_error += part.rounded_error;
    result.n_rounded_rows += part.n_rounded_rows;
  }
  return result;
}

}  // namespace penstock
