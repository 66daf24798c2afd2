#include "ops/cuda/cuda_ops.h"

#include <bit>
#include <cstdlib>

namespace penstock {

// Error: kInvalidArgument if this build has no CUDA backend or this machine has no GPU for it.
Result<std::unique_ptr<Ops>> make_cuda_ops(const OpsConfig& config) {
#ifdef PENSTOCK_CUDA
  if (config.ranks != nullptr) RETURN_IF_ERROR(cuda::choose_device(config.ranks->rank()));
  ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> device, cuda::open_cuda_device());
  std::unique_ptr<cuda::DeviceRanks> ranks;
  if (config.ranks != nullptr) {
    ASSIGN_OR_RETURN(ranks, cuda::make_nccl_ranks(*device, *config.ranks));
  }
  return std::make_unique<cuda::CudaOps>(std::move(device), config, std::move(ranks));
#else
  (void)config;
  return make_error(
      ErrorCode::kInvalidArgument,
      "backend cuda: this program was built without a CUDA compiler (docs/design/cuda.md)");
#endif
}

#ifdef PENSTOCK_CUDA_EMULATION
Result<std::unique_ptr<Ops>> make_emulated_cuda_ops(const OpsConfig& config) {
  // With a GPU at hand (scripts/visit_cuda), tests of the emulated device run on that GPU instead.
  if (std::getenv("PENSTOCK_EMULATED_IS_GPU") != nullptr) return make_cuda_ops(config);
  auto device = cuda::make_emulated_device();
  std::unique_ptr<cuda::DeviceRanks> ranks;
  if (config.ranks != nullptr) ranks = cuda::make_host_ranks(*device, *config.ranks);
  return std::make_unique<cuda::CudaOps>(std::move(device), config, std::move(ranks));
}
#endif

}  // namespace penstock

namespace penstock::cuda {

CudaOps::CudaOps(std::unique_ptr<Device> device, const OpsConfig& config,
                 std::unique_ptr<DeviceRanks> ranks)
    : device_(std::move(device)),
      config_(config),
      pool_(config.n_threads, config.cpus),
      packer_(*device_, pool_),
      step_memory_(*device_),
      graphs_(*device_, step_memory_),
      upload_(*device_),
      draws_(*device_, step_memory_),
      attention_(*device_, step_memory_, upload_, config.batch_invariant),
      layer_(*device_, config.batch_invariant),
      wide_(*device_, !config.batch_invariant),
      experts_(*this, *device_, step_memory_, wide_),
      host_experts_({*this, *device_, graphs_, experts_, packer_}, config),
      host_ngrams_(*this, *device_, graphs_, pool_) {
  graphs_.enable(!config.eager);
  if (ranks == nullptr) return;
  sums_ =
      std::make_unique<RankSums>(*this, *device_, step_memory_, *config.ranks, std::move(ranks));
  graphs_.enable(false);  // exchanges between ranks cannot be recorded
}

CudaOps::~CudaOps() = default;

Result<std::unique_ptr<Vector>> CudaOps::pack_vector(std::span<const float> values) {
  ASSIGN_OR_RETURN(Memory memory, Memory::make(*device_, values.size_bytes()));
  device_->copy_in(memory.data(), values.data(), values.size_bytes());
  return std::make_unique<CudaVector>(std::move(memory), static_cast<int>(values.size()));
}

void CudaOps::for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) {
  pool_.for_ranges(n_items, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) fn(ctx, static_cast<int>(i), thread);
  });
}

StepShape CudaOps::begin_step(const Batch* batch) {
  pool_.give_way(config_.thread_weight);
  host_batch_ = batch != nullptr ? *batch : Batch{};
  step_memory_.reset();
  const DescribedDraws& draws = draws_.begin_step(host_batch_);
  if (const Status done = upload_.set(host_batch_, draws, draws_.tokens_before()); !done)
    device_->give_up(done.error());
  layer_.begin_step(host_batch_);
  attention_.begin_step();
  host_ngrams_.begin_step(host_batch_.n_tokens());
  host_experts_.begin_step(batch != nullptr ? &host_batch_ : nullptr, this->batch());
  suits_graph_ = !host_experts_.takes_turns() && graphs_.suits(host_batch_);
  const auto rows = [&](int n) {
    if (suits_graph_) n = StepGraphs::rows_for(n);
    return (n + config_.row_multiple - 1) / config_.row_multiple * config_.row_multiple;
  };
  return shape_ = {rows(host_batch_.n_tokens()),
                   rows(static_cast<int>(host_batch_.output_rows.size())),
                   !host_batch_.given.empty()};
}

// Sparse attention also depends on how long the longest sequence is.
int CudaOps::attention_key(const StepKey& key) const {
  const bool is_sparse = key.cache != nullptr && (key.cache->spec().first_index_layer > 0 ||
                                                  key.cache->spec().first_entry_layer > 0);
  const int length = is_sparse ? std::bit_width(static_cast<unsigned>(upload_.length_room())) : 0;
  return upload_.attention_key() * 64 + length;
}

StepOutputs CudaOps::run_step(const StepKey& key, StepFn fn, void* ctx) {
  const int n_draws = static_cast<int>(host_batch_.draws.size());
  if (n_draws == 0) return graphs_.run({key, attention_key(key), 0}, suits_graph_, fn, ctx);
  struct WithDraws {
    StepFn fn;
    void* ctx;
    CudaOps* ops;
    int n;
  } both{fn, ctx, this, suits_graph_ ? StepGraphs::rows_for(n_draws) : n_draws};
  const auto draw_too = [](void* of) {
    const WithDraws& step = *static_cast<const WithDraws*>(of);
    const StepOutputs outputs = step.fn(step.ctx);
    PENSTOCK_CHECK(outputs.logits.rows > 0);
    step.ops->draws_.draw(outputs.logits, &step.ops->batch()->draws, step.n);
    return outputs;
  };
  return graphs_.run({key, attention_key(key), both.n}, suits_graph_, draw_too, &both);
}

// With several ranks there is no recovery, since the other ranks would not learn of it.
bool CudaOps::recover() {
  if (status()) return true;
  if (sums_ != nullptr || !device_->recover()) return false;
  graphs_.forget();
  step_memory_.give_back();
  wide_.give_back();
  host_experts_.hot().give_back();
  return true;
}

void* CudaOps::take_scratch(size_t bytes) {
  const Result<void*> taken = step_memory_.take(bytes);
  if (!taken) device_->give_up(taken.error());
  return taken.value_or(nullptr);
}

Tensor CudaOps::new_tensor(int rows, int cols, TensorRole) {
  return {scratch<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols)), DType::kF32, rows,
          cols, cols};
}

void CudaOps::read_rows(Tensor x, std::span<float> out) {
  const auto cols = static_cast<size_t>(x.cols), rows = static_cast<size_t>(x.rows);
  PENSTOCK_CHECK(out.size() == cols * rows);
  const Rows from = rows_of(x);
  if (x.row_stride == x.cols) return device_->copy_out(out.data(), from.data, out.size_bytes());
  for (size_t row = 0; row < rows; ++row)
    device_->copy_out(out.data() + row * cols, from.row(static_cast<int>(row)),
                      cols * sizeof(float));
}

namespace {

void copy_in_rows(Device& device, std::span<const float> values, const Rows& to, size_t cols,
                  bool in_one) {
  if (in_one) return device.copy_in(to.data, values.data(), values.size_bytes());
  for (size_t row = 0; row < values.size() / cols; ++row)
    device.copy_in(to.row(static_cast<int>(row)), values.data() + row * cols, cols * sizeof(float));
}

}  // namespace

void CudaOps::write_rows(std::span<const float> values, Tensor x) {
  const auto cols = static_cast<size_t>(x.cols);
  const auto rows = static_cast<int>(values.size() / cols);
  PENSTOCK_CHECK(values.size() % cols == 0 && rows <= x.rows);
  if (rows < x.rows) clear(x.row_range(rows, x.rows - rows));
  copy_in_rows(*device_, values, rows_of(x), cols, x.row_stride == x.cols);
}

}  // namespace penstock::cuda
