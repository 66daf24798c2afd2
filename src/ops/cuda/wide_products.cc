#include "ops/cuda/wide_products.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/tensors.h"

namespace penstock::cuda {
namespace {

constexpr int kOutputs = 128;  // outputs per block
// Least average number of rows per expert, and that from which on blocks of 128 rows are faster:
// tiles of 8 rows (ExpertProduct) are faster for fewer.
constexpr int kLeastOfExpert = 4, kManyOfExpert = 96;

int parts_of(int n, int of) { return (n + of - 1) / of; }

// For few rows: one block has all rows if they fit, and inputs are split among blocks until all
// multiprocessors are busy.
WideProducts::Cut cut_of_few(const WideProducts::Shape& shape, int n_multiprocessors,
                             int most_tokens) {
  constexpr int kLeastUnits = 4, kMostSplits = 16;
  int tokens = 16;
  while (tokens < most_tokens && tokens < shape.rows) tokens *= 2;
  const int blocks = parts_of(shape.rows, tokens) * parts_of(shape.outputs, kOutputs);
  // Measured on an H200: best are one block of 64 rows per multiprocessor, or 2 to 4 smaller
  // blocks.
  const int most_blocks =
      tokens < 64 ? 4 * n_multiprocessors : n_multiprocessors + n_multiprocessors / 8;
  int splits = 1;
  while (splits < kMostSplits && 2 * blocks * splits < most_blocks &&
         shape.units / (2 * splits) >= kLeastUnits)
    splits *= 2;
  return {tokens, splits};
}

// For many rows: the choice of least estimated time. Blocks run in rounds of one per
// multiprocessor; larger blocks read less per operation.
WideProducts::Cut cut_of_many(const WideProducts::Shape& shape, int n_multiprocessors) {
  struct Choice {
    int tokens;
    double us;  // per unit of 64 inputs
  };
  constexpr Choice kChoices[] = {{256, 0.68}, {128, 0.39}, {64, 0.29}};
  // A block's fill and drain time in units, and the time and bandwidth of JoinSplits.
  constexpr double kMoreUnits = 8, kJoinUs = 3, kBytesPerUs = 2e6;
  WideProducts::Cut best;
  double least = std::numeric_limits<double>::max();
  for (const Choice& choice : kChoices) {
    for (const int splits : {1, 2, 4, 8}) {
      const int blocks =
          parts_of(shape.rows, choice.tokens) * parts_of(shape.outputs, kOutputs) * splits;
      const double units = static_cast<double>(shape.units) / splits + kMoreUnits;
      double us = parts_of(blocks, n_multiprocessors) * units * choice.us;
      if (splits > 1)
        us += kJoinUs + 4.0 * shape.rows * shape.outputs * (2 * splits + 1) / kBytesPerUs;
      if (us < least) least = us, best = {choice.tokens, splits};
    }
  }
  return best;
}

// Calls fn.operator()<coding>() with the coding as template argument.
template <class Fn>
bool with_constant(StreamCoding coding, Fn fn) {
  using enum StreamCoding;
  switch (coding) {
    case kE2M1:
    case kNone: return fn.template operator()<kNone>();
    case kBF16: return fn.template operator()<kBF16>();
    case kF16: return fn.template operator()<kF16>();
    case kHalf8: return fn.template operator()<kHalf8>();
    case kHalf4: return fn.template operator()<kHalf4>();
    case kWide4: return fn.template operator()<kWide4>();
    case kWide4Zeros: return fn.template operator()<kWide4Zeros>();
    case kSuper4: return fn.template operator()<kSuper4>();
    case kSuper5: return fn.template operator()<kSuper5>();
    case kSuper6: return fn.template operator()<kSuper6>();
  }
  return false;
}

// Calls fn.operator()<K>() with the kernel K for experts. Returns false if there is none.
template <class Fn>
bool with_kernel_of_experts(StreamCoding coding, int tokens, Fn fn) {
  return with_constant(coding, [&]<StreamCoding Of>() {
    if (tokens == 64) return fn.template operator()<WideExpertProduct<64, Of>>();
    return tokens == 128 && fn.template operator()<WideExpertProduct<128, Of>>();
  });
}

// The coding by which a weight is multiplied here: numbers of E2M1 are read from the table of levels.
StreamCoding coding_of(const WeightOnDevice& w) {
  const StreamCoding coding = stream_coding(w);
  return coding == StreamCoding::kE2M1 ? StreamCoding::kNone : coding;
}

bool suits(const WeightOnDevice& w) { return w.form != WeightForm::kF32; }

bool alike(const WeightOnDevice& a, const WeightOnDevice& b) {
  return a.form == b.form && a.rows == b.rows && a.cols == b.cols &&
         a.padded_cols == b.padded_cols && a.bits == b.bits && a.unit_bytes == b.unit_bytes &&
         coding_of(a) == coding_of(b);
}

}  // namespace

WideProducts::Cut WideProducts::best_cut(const Shape& shape, int n_multiprocessors,
                                         bool has_wgmma) {
  if (shape.rows < kLeastRounded) return cut_of_few(shape, n_multiprocessors, has_wgmma ? 64 : 32);
  return has_wgmma ? cut_of_many(shape, n_multiprocessors) : Cut{64, 1};
}

WideProducts::Cut WideProducts::cut_for(const Product& product) const {
  Cut cut = best_cut({product.x.rows, product.w.rows, product.w.n_units()},
                     device_.n_multiprocessors(), device_.has_wgmma());
  if (forced_.tokens != 0) cut.tokens = forced_.tokens;
  if (forced_.splits != 0) cut.splits = forced_.splits;
  cut.splits = std::min(cut.splits, product.w.n_units());
  return cut;
}

Status WideProducts::make_room(Memory& memory, size_t bytes) {
  if (memory.bytes() >= bytes) return {};
  // Released memory invalidates all recordings; sizes are powers of two, so this is rare.
  memory.reset();
  ASSIGN_OR_RETURN(memory, Memory::make(device_, std::bit_ceil(bytes)));
  return {};
}

// Rounds the rows that `kernel` reads, unless they are those of the last call.
Status WideProducts::round(RoundToTiles kernel, const WeightOnDevice& w) {
  const bool halves = w.form == WeightForm::kF16;
  const Rounded wanted = {kernel.x.data,      kernel.input_order,   kernel.sources, halves,
                          kernel.padded_cols, kernel.padded_tokens, kernel.n_parts};
  if (rounded_ == wanted) return {};
  begin_inputs();
  const auto n_tokens = static_cast<size_t>(kernel.padded_tokens),
             n = n_tokens * static_cast<size_t>(w.padded_cols);
  const size_t tiles = size_t{2} * static_cast<size_t>(kernel.n_parts) * n;
  const size_t n_floats = halves ? n_tokens : kernel.n_parts == 2 ? n / 32 : 0;
  RETURN_IF_ERROR(make_room(inputs_, tiles + n_floats * sizeof(float)));
  rounded_ = wanted;
  kernel.out = inputs_.as<std::byte>();
  auto* const floats = reinterpret_cast<float*>(kernel.out + tiles);
  if (halves) {
    device_.launch(RoundToHalfTiles{kernel, floats},
                   Grid{kernel.padded_tokens, 1, RoundToHalfTiles::kSharedBytes});
    return {};
  }
  if (kernel.n_parts == 2) kernel.sums = floats;
  constexpr int kInputs = RoundToTiles::kThreads * RoundToTiles::kPieceInputs;
  device_.launch(kernel, Grid{kernel.padded_tokens, parts_of(kernel.padded_cols, kInputs)});
  return {};
}

// Returns what follows the tiles of the rounded inputs: sums of inputs, or scales of rows.
const float* WideProducts::floats_of_inputs() const {
  const size_t n =
      static_cast<size_t>(rounded_.padded_tokens) * static_cast<size_t>(rounded_.padded_cols);
  return reinterpret_cast<const float*>(inputs_.as<std::byte>() +
                                        2 * static_cast<size_t>(rounded_.parts) * n);
}

// Returns false if there is no kernel for the cut, or too little shared memory for it.
template <StreamCoding Of>
bool WideProducts::launch(const Product& product, Cut cut, int parts) {
  const auto* const inputs = inputs_.as<std::byte>();
  Product scaled = product;
  if (Of == StreamCoding::kF16) scaled.token_scales = floats_of_inputs();
  float* const split_sums = cut.splits > 1 ? split_sums_.as<float>() : nullptr;
  bool launched = false;
  const auto with = [&]<int Tokens, int Parts>() {
    using K = WideProduct<Tokens, Of, Parts>;
    if (cut.tokens != Tokens || parts != Parts) return;
    if (K::kSharedBytes > device_.most_shared_bytes()) return;
    if (!device_.has_wgmma() && !device_.emulated() && Tokens * Parts > 64)
      // WideProduct is compiled for small blocks only without wgmma
      return;
    launched = true;
    device_.launch(
        K{scaled, inputs, floats_of_inputs(), rounded_.padded_tokens, split_sums, cut.splits},
        Grid{parts_of(product.x.rows, Tokens), parts_of(product.w.rows, kOutputs) * cut.splits,
             K::kSharedBytes});
  };
  with.template operator()<64, 1>(), with.template operator()<128, 1>(),
      with.template operator()<256, 1>();
  with.template operator()<16, 2>(), with.template operator()<32, 2>(),
      with.template operator()<64, 2>();
  if (launched && cut.splits > 1)
    device_.launch(JoinSplits{product, split_sums, cut.splits},
                   Grid{product.x.rows, parts_of(product.w.rows, JoinSplits::kThreads)});
  return launched;
}

bool WideProducts::multiply(const Product& product) {
  const WeightOnDevice& w = product.w;
  // Inputs rounded to INT8 are left to kernels that sum integers exactly.
  if (!enabled_ || !suits(w) || product.x.rows < least_rows(w.form) ||
      product.token_scales != nullptr)
    return false;
  const int parts = product.x.rows < kLeastRounded ? 2 : 1;
  const Cut cut = cut_for(product);
  const int most_tokens = parts == 2 ? 64 : 256;  // rows per block
  Status ready = round({.x = product.x,
                        .input_order = w.input_order,
                        .n_parts = parts,
                        .padded_cols = w.padded_cols,
                        .padded_tokens = parts_of(product.x.rows, most_tokens) * most_tokens},
                       w);
  if (ready && cut.splits > 1)
    ready = make_room(split_sums_, static_cast<size_t>(cut.splits) *
                                       static_cast<size_t>(product.x.rows) *
                                       static_cast<size_t>(w.rows) * sizeof(float));
  if (!ready) return device_.give_up(ready.error()), true;
  return with_constant(coding_of(w),
                       [&]<StreamCoding Of>() { return launch<Of>(product, cut, parts); });
}

bool WideProducts::gated_linear(Tensor x, const LinearTarget& gate, const LinearTarget& up,
                                const ActivationFunction& f, Tensor out) {
  const auto weight_of = [](const LinearTarget& target) -> const CudaWeight& {
    return static_cast<const CudaWeight&>(*target.weight);
  };
  const WeightOnDevice &w = weight_of(gate).on_device(), &other = weight_of(up).on_device();
  const StreamCoding coding = coding_of(w);
  const bool one = alike(w, other) && w.input_order == nullptr && other.input_order == nullptr;
  if (!enabled_ || !gates_ || x.rows < kLeastRounded || !one ||
      w.rows % WideGatedProduct<128, StreamCoding::kBF16>::kOutputs != 0)
    return false;
  if (coding == StreamCoding::kNone || coding == StreamCoding::kF16 ||
      weight_of(gate).rounding().to_int8 || weight_of(up).rounding().to_int8 ||
      (!device_.has_wgmma() && !device_.emulated()))
    return false;
  const Product product = {w, rows_of(x), rows_of(out), device_data(gate.bias), nullptr};
  Product both = product;  // estimates the cut of both weights as one product
  both.w.rows = 2 * w.rows;
  const Cut cut = cut_for(both);
  if (cut.splits != 1 || cut.tokens < 128 || cut_for(product).splits != 1) return false;
  begin_inputs();
  const int padded_tokens = parts_of(x.rows, 256) * 256;
  // inputs_ and gated_ are swapped below, so both get the size of the larger.
  const size_t bytes = size_t{2} * static_cast<size_t>(padded_tokens) *
                       static_cast<size_t>(std::max(w.rows, w.padded_cols));
  Status ready = make_room(inputs_, bytes);
  if (ready) ready = make_room(gated_, bytes);
  if (ready)
    ready = round({.x = product.x,
                   .input_order = nullptr,
                   .n_parts = 1,
                   .padded_cols = w.padded_cols,
                   .padded_tokens = padded_tokens},
                  w);
  if (!ready) return device_.give_up(ready.error()), true;
  bool launched = false;
  with_constant(coding, [&]<StreamCoding Of>() {
    const auto with = [&]<int Tokens>() {
      using K = WideGatedProduct<Tokens, Of>;
      if (cut.tokens != Tokens || K::kSharedBytes > device_.most_shared_bytes()) return;
      launched = true;
      const WideProduct<Tokens, Of, 1> base{
          product, inputs_.as<std::byte>(), nullptr, padded_tokens, nullptr, 1};
      device_.launch(K{base, other, device_data(up.bias), f, gated_.as<std::byte>()},
                     Grid{parts_of(x.rows, Tokens), w.rows / K::kOutputs, K::kSharedBytes});
    };
    if constexpr (Of != StreamCoding::kNone && Of != StreamCoding::kF16)
      with.template operator()<128>(), with.template operator()<256>();
    return true;
  });
  if (!launched) return false;
  std::swap(inputs_, gated_);
  rounded_ = {product.out.data, nullptr, nullptr, false, w.rows, padded_tokens, 1};
  gated_at_ = device_.n_launches();
  return true;
}

int WideProducts::rows_of_experts(std::span<const ExpertWeight> experts, int n_tokens,
                                  int n_choices) const {
  const WeightOnDevice& first = experts[0].weight;
  const auto n_experts = static_cast<int>(experts.size());
  if (!enabled_ || n_tokens < kLeastRounded || n_choices < kLeastOfExpert * n_experts) return 0;
  const bool one_shape = std::ranges::all_of(experts, [&](const ExpertWeight& expert) {
    return alike(expert.weight, first) && expert.weight.input_order == nullptr;
  });
  if (!one_shape || !suits(first)) return 0;
  int rows = n_choices >= kManyOfExpert * n_experts && device_.has_wgmma() ? 128 : 64;
  if (forced_.tokens == 64 || forced_.tokens == 128) rows = forced_.tokens;
  const bool fits = with_kernel_of_experts(coding_of(first), rows, [&]<class K>() {
    return K::kSharedBytes <= device_.most_shared_bytes();
  });
  return fits ? rows : 0;
}

void WideProducts::multiply_experts(const ExpertWeight* experts, const WeightOnDevice& first,
                                    const RowsByExpert& rows, int rows_of_expert, Rows out) {
  const Status ready = round({.x = rows.x,
                              .n_parts = 1,
                              .padded_cols = first.padded_cols,
                              .padded_tokens = rows.n_rows,
                              .sources = rows.sources,
                              .choice_weights = rows.choice_weights,
                              .n_active = rows.n_active},
                             first);
  if (!ready) return device_.give_up(ready.error());
  const float* const row_scales = first.form == WeightForm::kF16 ? floats_of_inputs() : nullptr;
  with_kernel_of_experts(coding_of(first), rows_of_expert, [&]<class K>() {
    device_.launch(K{experts, rows.tile_experts, inputs_.as<std::byte>(), row_scales, out},
                   Grid{rows.n_rows / K::kTokens, parts_of(first.rows, kOutputs), K::kSharedBytes});
    return true;
  });
}

}  // namespace penstock::cuda
