#include "ops/cuda/host_experts.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/log.h"
#include "ops/cuda/kernels/pool.h"

namespace penstock::cuda {

HostExperts::HostExperts(Ops& ops, Device& device, StepGraphs& graphs, const OpsConfig& config)
    : ops_(ops), device_(device), graphs_(graphs), config_(config), pinned_(device) {}

Ops* HostExperts::host() {
  if (host_ != nullptr || config_.ranks != nullptr) return host_.get();
  OpsConfig config = config_;
  config.row_multiple = 1;
  Result<std::unique_ptr<Ops>> made = make_ops("cpu", config);
  if (!made) {
    log().error("{}", made.error().message);
    return nullptr;
  }
  host_ = std::move(made).value();
  return host_.get();
}

void HostExperts::begin_step(const Batch* batch, const BatchOnDevice* on_device) {
  is_sent_ = false;
  batch_ = batch, on_device_ = on_device;
  if (host_ != nullptr) (void)host_->begin_step(batch);
}

HostExperts::Pinned HostExperts::lay_out(Tensor x, Tensor router_logits) const {
  auto* at = reinterpret_cast<float*>(pinned_.data());
  const auto next = [&](Tensor like) {
    const Tensor tensor{at, DType::kF32, like.rows, like.cols, like.cols};
    at += static_cast<size_t>(like.rows) * static_cast<size_t>(like.cols);
    return tensor;
  };
  const Tensor in = next(x), logits = next(router_logits), out = next(x);
  return {in, logits, out, reinterpret_cast<int32_t*>(at)};
}

void HostExperts::send(Tensor x, Tensor router_logits, const MoeParams& params) {
  is_sent_ = true;
  const size_t n_values =
      static_cast<size_t>(x.rows) *
      (2 * static_cast<size_t>(x.cols) + static_cast<size_t>(router_logits.cols) + 1);
  const std::byte* const before = pinned_.data();
  if (const Status room = pinned_.make_room(n_values * sizeof(float)); !room)
    return device_.give_up(room.error());
  if (pinned_.data() != before) graphs_.expire();
  const Pinned to = lay_out(x, router_logits);
  ops_.copy(x, to.x);
  ops_.copy(router_logits.row_range(0, x.rows), to.router_logits);
  if (params.token_experts != nullptr && on_device_ != nullptr)
    device_.launch(ListTokens{to.tokens, on_device_},
                   Grid{(x.rows + ListTokens::kThreads - 1) / ListTokens::kThreads});
  graphs_.between([this] { sent_ = device_.mark(); });
}

void HostExperts::run(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  if (!is_sent_) send(x, router_logits, params);
  is_sent_ = false;
  if (!device_.status()) return;
  const Pinned at = lay_out(x, router_logits);
  graphs_.between([this, at, params] {
    device_.wait(sent_);
    if (device_.status()) compute(at, params);
  });
  ops_.copy(at.out, out);
}

void HostExperts::begin_with_tokens(Ops& cpu, const Pinned& at) {
  known_ = *batch_;
  known_.tokens = {at.tokens, known_.tokens.size()};
  (void)cpu.begin_step(&known_);
}

// Rows beyond the batch are zeros.
void HostExperts::compute(const Pinned& at, const MoeParams& params) {
  // An engine that shares another's weights makes it here.
  const bool is_new = host_ == nullptr;
  Ops* const cpu = host();
  if (is_new && cpu != nullptr) (void)cpu->begin_step(batch_);
  if (cpu == nullptr)
    return device_.give_up({ErrorCode::kInternal, "experts on the host: there is no backend cpu"});
  const bool has_rows = batch_ != nullptr && batch_->n_tokens() > 0;
  if (params.token_experts != nullptr && has_rows) begin_with_tokens(*cpu, at);
  const int n = has_rows ? std::min(batch_->n_tokens(), at.x.rows) : at.x.rows;
  const auto own = [&](Tensor all) { return all.row_range(0, n); };
  cpu->moe(own(at.x), own(at.router_logits), params, own(at.out));
  bytes_read_ = cpu->expert_bytes_read();
  auto* const values = static_cast<float*>(at.out.data);
  std::fill(values + int64_t{n} * at.out.cols, values + int64_t{at.out.rows} * at.out.cols, 0.0f);
}

}  // namespace penstock::cuda
