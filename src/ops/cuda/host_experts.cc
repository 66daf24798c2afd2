#include "ops/cuda/host_experts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "ops/cuda/kernels/moe.h"
#include "ops/cuda/kernels/pool.h"

namespace penstock::cuda {

HostExperts::HostExperts(const Parts& parts, const OpsConfig& config)
    : ops_(parts.ops),
      device_(parts.device),
      graphs_(parts.graphs),
      experts_(parts.experts),
      packer_(parts.packer),
      config_(config),
      pinned_(device_),
      hot_(device_) {}

Ops* HostExperts::host() {
  if (host_ != nullptr || config_.ranks != nullptr) return host_.get();
  OpsConfig config = config_;
  config.row_multiple = 1;
  config.twins = this;
  Result<std::unique_ptr<Ops>> made = make_ops("cpu", config);
  if (!made) {
    log().error("{}", made.error().message);
    return nullptr;
  }
  host_ = std::move(made).value();
  return host_.get();
}

Result<std::unique_ptr<Weight>> HostExperts::twin(const QuantizedMatrix& matrix) {
  if (!keeps_twins_) return nullptr;
  ASSIGN_OR_RETURN(const WeightSource source, source_of(matrix));
  return packer_.pack_image(source);
}

Result<std::unique_ptr<Weight>> HostExperts::twin(const GroupedMatrix& matrix, int first_row,
                                                  int n_rows) {
  if (!keeps_twins_) return nullptr;
  ASSIGN_OR_RETURN(const WeightSource source, source_of(matrix, first_row, n_rows));
  return packer_.pack_image(source);
}

Result<std::unique_ptr<Vector>> HostExperts::twin(std::span<const float> values) {
  if (!keeps_twins_) return nullptr;
  return ops_.pack_vector(values);
}

void HostExperts::begin_step(const Batch* batch, const BatchOnDevice* on_device) {
  is_sent_ = false;
  batch_ = batch, on_device_ = on_device;
  if (host_ != nullptr) (void)host_->begin_step(batch);
  hot_.begin_step(!config_.batch_invariant);
}

HostExperts::Pinned HostExperts::lay_out(Tensor x, Tensor router_logits, int n_active) const {
  auto* at = reinterpret_cast<float*>(pinned_.data());
  const auto next = [&](Tensor like) {
    const Tensor tensor{at, DType::kF32, like.rows, like.cols, like.cols};
    at += static_cast<size_t>(like.rows) * static_cast<size_t>(like.cols);
    return tensor;
  };
  const Tensor in = next(x), logits = next(router_logits), out = next(x);
  const ptrdiff_t n_choices = ptrdiff_t{x.rows} * n_active;
  auto* const tokens = reinterpret_cast<int32_t*>(at);
  return {in, logits, out, tokens, tokens + x.rows, at + x.rows + n_choices};
}

int HostExperts::n_own_rows(int n_rows) const {
  const bool has_rows = batch_ != nullptr && batch_->n_tokens() > 0;
  return has_rows ? std::min(batch_->n_tokens(), n_rows) : n_rows;
}

// Adapters that lie on the host are the host's to add.
bool HostExperts::adapts(const MoeParams& params) const {
  const auto has_terms = [](const AdapterTerms& terms) { return !terms.empty(); };
  return !adapters().empty() && (std::ranges::any_of(params.gate_adapters, has_terms) ||
                                 std::ranges::any_of(params.up_adapters, has_terms) ||
                                 std::ranges::any_of(params.down_adapters, has_terms));
}

void HostExperts::send(Tensor x, Tensor router_logits, const MoeParams& params) {
  is_sent_ = true;
  shared_ = {};
  const int n_active = params.routing.n_active;
  const size_t n_values =
      static_cast<size_t>(x.rows) * (2 * static_cast<size_t>(x.cols) +
                                     static_cast<size_t>(router_logits.cols + 1 + 2 * n_active));
  const std::byte* const before = pinned_.data();
  if (const Status room = pinned_.make_room(n_values * sizeof(float)); !room)
    return device_.give_up(room.error());
  if (pinned_.data() != before) graphs_.expire();
  const Pinned to = lay_out(x, router_logits, n_active);
  ops_.copy(x, to.x);
  shared_ = share(x, router_logits, params, to);
  if (shared_.layer != nullptr) return;
  ops_.copy(router_logits.row_range(0, x.rows), to.router_logits);
  if (params.token_experts != nullptr && on_device_ != nullptr)
    device_.launch(ListTokens{to.tokens, on_device_},
                   Grid{(x.rows + ListTokens::kThreads - 1) / ListTokens::kThreads});
  graphs_.between([this] { sent_ = device_.mark(); });
}

namespace {

// Steps of so many rows are not recorded.
bool has_many_rows(Tensor x) { return x.rows > StepGraphs::kMostRows; }

}  // namespace

// Has the device route, and compute its own experts unless it takes turns.
HostExperts::Shared HostExperts::share(Tensor x, Tensor router_logits, const MoeParams& params,
                                       const Pinned& at) {
  if (!config_.batch_invariant && adapts(params)) return {};
  Shared shared{.layer = hot_.find(params)};
  if (shared.layer == nullptr) return {};
  takes_turns_ = takes_turns_ || config_.batch_invariant;
  const bool turns =
      config_.batch_invariant ||
      (has_many_rows(x) && way_.choose(x.rows) == MeasuredWay::kOnDevice && hot_.has_ring());
  shared.turns = turns;
  const BatchOnDevice* const own =
      batch_ != nullptr && batch_->n_tokens() > 0 ? on_device_ : nullptr;
  shared.choices =
      experts_.choose(router_logits, x.rows, params.routing, shared.layer->vectors(), own);
  const int n_choices = x.rows * params.routing.n_active;
  device_.launch(ShareChoices{shared.choices, n_choices, shared.layer->n_experts(),
                              turns ? nullptr : shared.layer->flags(), at.experts, at.weights},
                 Grid{(n_choices + ShareChoices::kThreads - 1) / ShareChoices::kThreads});
  graphs_.between([this] { sent_ = device_.mark(); });
  if (turns) return shared;
  shared.out = ops_.new_tensor(x.rows, at.out.cols, TensorRole::kActivation);
  experts_.compute(
      {x, shared.choices, params, shared.layer->weights(params), own, {}, nullptr, shared.out});
  return shared;
}

void HostExperts::run(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  if (!is_sent_) send(x, router_logits, params);
  is_sent_ = false;
  if (!device_.status()) return;
  const Pinned at = lay_out(x, router_logits, params.routing.n_active);
  HotLayer* const layer = shared_.layer;
  if (shared_.turns) return run_in_turns(x, params, at, out);
  graphs_.between([this, at, params, layer] {
    device_.wait(sent_);
    if (device_.status()) compute_in_time(at, params, layer);
  });
  ops_.copy(at.out, out);
  if (layer != nullptr) ops_.add(out, shared_.out, 1.0f);
}

void HostExperts::begin_with_tokens(Ops& cpu, const Pinned& at) {
  known_ = *batch_;
  known_.tokens = {at.tokens, known_.tokens.size()};
  (void)cpu.begin_step(&known_);
}

void HostExperts::compute_in_time(const Pinned& at, const MoeParams& params, HotLayer* layer) {
  const auto begin = std::chrono::steady_clock::now();
  compute(at, params, layer);
  if (layer != nullptr && has_many_rows(at.x))
    way_.took(MeasuredWay::kOnHost, at.x.rows, std::chrono::steady_clock::now() - begin);
}

// Computes what the device does not. Rows beyond the batch are zeros.
void HostExperts::compute(const Pinned& at, const MoeParams& params, HotLayer* layer) {
  // An engine that shares another's weights makes it here.
  const bool is_new = host_ == nullptr;
  Ops* const cpu = host();
  if (is_new && cpu != nullptr) (void)cpu->begin_step(batch_);
  if (cpu == nullptr)
    return device_.give_up({ErrorCode::kInternal, "experts on the host: there is no backend cpu"});
  const int n = n_own_rows(at.x.rows);
  MoeParams own_params = params;
  if (layer != nullptr) {
    const auto n_choices = static_cast<size_t>(n) * static_cast<size_t>(params.routing.n_active);
    hot_.count(*layer, {at.experts, n_choices});
    chosen_.resize(n_choices);
    for (size_t i = 0; i < n_choices; ++i) {
      const int expert = at.experts[i];
      const bool is_there = expert >= 0 && expert < layer->n_experts() &&
                            layer->slots[static_cast<size_t>(expert)] >= 0;
      chosen_[i] = {is_there ? -1 : expert, at.weights[i]};
    }
    own_params.chosen = chosen_;
  } else if (params.token_experts != nullptr && batch_ != nullptr && batch_->n_tokens() > 0) {
    begin_with_tokens(*cpu, at);
  }
  const auto own = [&](Tensor all) { return all.row_range(0, n); };
  cpu->moe(own(at.x), own(at.router_logits), own_params, own(at.out));
  bytes_read_ = cpu->expert_bytes_read();
  auto* const values = static_cast<float*>(at.out.data);
  std::fill(values + int64_t{n} * at.out.cols, values + int64_t{at.out.rows} * at.out.cols, 0.0f);
}

namespace {

// The experts that a layer's tokens chose, those with a copy first.
class ChosenTurns final : public ExpertTurns {
 public:
  ChosenTurns(Device& device, HotExperts& hot, HotLayer& layer, HotExperts::Bring how,
              std::span<const int32_t> choices)
      : device_(device), hot_(hot), layer_(layer), how_(how) {
    std::vector<bool> seen(static_cast<size_t>(layer.n_experts()), false);
    for (const int32_t e : choices) {
      if (e < 0 || e >= layer.n_experts() || seen[static_cast<size_t>(e)]) continue;
      seen[static_cast<size_t>(e)] = true;
      wanted_.push_back(e);
    }
    std::ranges::stable_partition(wanted_,
                                  [&](int e) { return layer.slots[static_cast<size_t>(e)] >= 0; });
  }
  bool next() override {
    if (!device_.status()) return false;
    const std::span<const int> all = wanted_;
    if (done_ == wanted_.size()) {
      for (const int e : all.first(begin_)) hot_.show(layer_, e, true);
      return false;
    }
    for (const int e : all.subspan(begin_, done_ - begin_)) hot_.show(layer_, e, false);
    const size_t n = hot_.bring(layer_, all.subspan(done_), how_);
    begin_ = done_, done_ += n;
    return n > 0;
  }
  bool has(int expert) const override {
    const auto end = wanted_.begin() + static_cast<ptrdiff_t>(done_);
    return std::find(wanted_.begin() + static_cast<ptrdiff_t>(begin_), end, expert) != end;
  }

 private:
  Device& device_;
  HotExperts& hot_;
  HotLayer& layer_;
  const HotExperts::Bring how_;
  std::vector<int> wanted_;
  size_t begin_ = 0, done_ = 0;  // of the turn
};

}  // namespace

void HostExperts::run_in_turns(Tensor x, const MoeParams& params, const Pinned& at, Tensor out) {
  device_.wait(sent_);
  if (!device_.status()) return;
  const auto begin = std::chrono::steady_clock::now();
  const auto n_choices =
      static_cast<size_t>(n_own_rows(x.rows)) * static_cast<size_t>(params.routing.n_active);
  hot_.count(*shared_.layer, {at.experts, n_choices});
  const bool exact = config_.batch_invariant;
  ChosenTurns turns(device_, hot_, *shared_.layer,
                    exact ? HotExperts::Bring::kAnywhere : HotExperts::Bring::kInRing,
                    {at.experts, n_choices});
  const bool has_rows = batch_ != nullptr && batch_->n_tokens() > 0;
  experts_.compute({x, shared_.choices, params, shared_.layer->weights(params),
                    has_rows ? on_device_ : nullptr,
                    exact ? adapters() : std::span<const int32_t>(), &turns, out});
  if (exact) return;
  device_.wait(device_.mark());
  way_.took(MeasuredWay::kOnDevice, x.rows, std::chrono::steady_clock::now() - begin);
}

}  // namespace penstock::cuda
