#include "ops/cuda/wide_products.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace penstock::cuda {
namespace {

constexpr int kOutputs = 128;  // of a block

int parts_of(int n, int of) { return (n + of - 1) / of; }

// Each block has its inputs, which are split further while multiprocessors would have nothing to do.
WideProducts::Cut cut_of_few(const Product& product, int n_multiprocessors, int most_tokens) {
  constexpr int kLeastUnits = 4, kMostSplits = 16;
  int tokens = 16;
  while (tokens < most_tokens && tokens < product.x.rows) tokens *= 2;
  const int blocks = parts_of(product.x.rows, tokens) * parts_of(product.w.rows, kOutputs);
  // As an H200 showed: blocks of 64 rows once on each multiprocessor, of fewer two or more.
  const int most_blocks = tokens < 64 ? 4 * n_multiprocessors : n_multiprocessors + n_multiprocessors / 8;
  int splits = 1;
  while (splits < kMostSplits && 2 * blocks * splits < most_blocks &&
         product.w.n_units() / (2 * splits) >= kLeastUnits)
    splits *= 2;
  return {tokens, splits};
}

// Of some ways that which is done first: blocks of all multiprocessors take turns, larger ones read less for what they do.
WideProducts::Cut cut_of_many(const Product& product, int n_multiprocessors) {
  struct Choice {
    int tokens;
    double us;  // of a unit
  };
  constexpr Choice kChoices[] = {{256, 0.68}, {128, 0.39}, {64, 0.29}};
  constexpr double kMoreUnits = 8, kJoinUs = 3,
                   kBytesPerUs = 2e6;  // before the first and behind the last; JoinSplits
  WideProducts::Cut best;
  double least = std::numeric_limits<double>::max();
  for (const Choice& choice : kChoices) {
    for (const int splits : {1, 2, 4, 8}) {
      const int blocks =
          parts_of(product.x.rows, choice.tokens) * parts_of(product.w.rows, kOutputs) * splits;
      const double units = static_cast<double>(product.w.n_units()) / splits + kMoreUnits;
      double us = parts_of(blocks, n_multiprocessors) * units * choice.us;
      if (splits > 1) us += kJoinUs + 4.0 * product.x.rows * product.w.rows * (2 * splits + 1) / kBytesPerUs;
      if (us < least) least = us, best = {choice.tokens, splits};
    }
  }
  return best;
}

}  // namespace

WideProducts::Cut WideProducts::cut_for(const Product& product, int parts) const {
  const int n = device_.n_multiprocessors();
  Cut cut = parts == 2            ? cut_of_few(product, n, device_.has_wgmma() ? 64 : 32)
            : device_.has_wgmma() ? cut_of_many(product, n)
                                  : Cut{64, 1};
  if (forced_.tokens != 0) cut.tokens = forced_.tokens;
  if (forced_.splits != 0) cut.splits = forced_.splits;
  cut.splits = std::min(cut.splits, product.w.n_units());
  return cut;
}

Status WideProducts::make_room(Memory& memory, size_t bytes) {
  if (memory.bytes() >= bytes) return {};
  memory.reset();  // which makes recordings anew: seldom, as it grows by twos
  ASSIGN_OR_RETURN(memory, Memory::make(device_, std::bit_ceil(bytes)));
  return {};
}

Status WideProducts::round(const Product& product, int parts) {
  const WeightOnDevice& w = product.w;
  const int most_tokens = parts == 2 ? 64 : 256;  // of a block
  const Rounded wanted = {product.x.data, w.input_order, w.padded_cols,
                          parts_of(product.x.rows, most_tokens) * most_tokens, parts};
  if (rounded_ == wanted) return {};
  begin_inputs();
  const auto n = static_cast<size_t>(wanted.padded_tokens) * static_cast<size_t>(wanted.padded_cols);
  const size_t tiles = size_t{2} * static_cast<size_t>(parts) * n;
  RETURN_IF_ERROR(make_room(inputs_, tiles + (parts == 2 ? n / 32 * sizeof(float) : 0)));
  rounded_ = wanted;
  auto* const to = inputs_.as<std::byte>();
  using K = RoundToTiles;
  device_.launch(K{product.x, w.input_order, to, parts == 2 ? reinterpret_cast<float*>(to + tiles) : nullptr,
                   w.padded_cols, wanted.padded_tokens},
                 Grid{wanted.padded_tokens, parts_of(w.padded_cols, K::kThreads * K::kPieceInputs)});
  return {};
}

// False: there is no such kernel, or too little shared memory for it.
template <StreamCoding Of>
bool WideProducts::launch(const Product& product, Cut cut, int parts) {
  const auto* const inputs = inputs_.as<std::byte>();
  const auto n_inputs =
      static_cast<size_t>(rounded_.padded_tokens) * static_cast<size_t>(rounded_.padded_cols);
  const auto* const sums = reinterpret_cast<const float*>(inputs + 2 * static_cast<size_t>(parts) * n_inputs);
  float* const split_sums = cut.splits > 1 ? split_sums_.as<float>() : nullptr;
  bool launched = false;
  const auto with = [&]<int Tokens, int Parts>() {
    using K = WideProduct<Tokens, Of, Parts>;
    if (cut.tokens != Tokens || parts != Parts) return;
    if (K::kSharedBytes > device_.most_shared_bytes()) return;
    if (!device_.has_wgmma() && !device_.emulated() && Tokens * Parts > 64)
      return;  // WideProduct has no body there
    launched = true;
    device_.launch(K{product, inputs, sums, rounded_.padded_tokens, split_sums, cut.splits},
                   Grid{parts_of(product.x.rows, Tokens), parts_of(product.w.rows, kOutputs) * cut.splits,
                        K::kSharedBytes});
  };
  with.template operator()<64, 1>(), with.template operator()<128, 1>(), with.template operator()<256, 1>();
  with.template operator()<16, 2>(), with.template operator()<32, 2>(), with.template operator()<64, 2>();
  if (launched && cut.splits > 1)
    device_.launch(JoinSplits{product, split_sums, cut.splits},
                   Grid{product.x.rows, parts_of(product.w.rows, JoinSplits::kThreads)});
  return launched;
}

bool WideProducts::multiply(const Product& product) {
  const WeightOnDevice& w = product.w;
  const bool suits = w.form == WeightForm::kCodes || w.form == WeightForm::kBF16;
  // Sums of whole numbers are exact elsewhere.
  if (!enabled_ || !suits || product.x.rows < kLeastRows || product.token_scales != nullptr) return false;
  const int parts = product.x.rows < kLeastRounded ? 2 : 1;
  const Cut cut = cut_for(product, parts);
  Status ready = round(product, parts);
  if (ready && cut.splits > 1)
    ready = make_room(split_sums_, static_cast<size_t>(cut.splits) * static_cast<size_t>(product.x.rows) *
                                       static_cast<size_t>(w.rows) * sizeof(float));
  if (!ready) return device_.give_up(ready.error()), true;
  using enum StreamCoding;
  switch (stream_coding(w)) {
    case kNone: return launch<kNone>(product, cut, parts);
    case kBF16: return launch<kBF16>(product, cut, parts);
    case kHalf8: return launch<kHalf8>(product, cut, parts);
    case kHalf4: return launch<kHalf4>(product, cut, parts);
    case kWide4: return launch<kWide4>(product, cut, parts);
    case kWide4Zeros: return launch<kWide4Zeros>(product, cut, parts);
    case kSuper4: return launch<kSuper4>(product, cut, parts);
    case kSuper5: return launch<kSuper5>(product, cut, parts);
    case kSuper6: return launch<kSuper6>(product, cut, parts);
  }
  return false;
}

}  // namespace penstock::cuda
