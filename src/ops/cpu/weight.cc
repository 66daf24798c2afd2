#include "ops/cpu/weight.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "kernels/panel_pack.h"

namespace penstock {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// [begin, end) whose start is a multiple of kHugePage, or null. The slack of alignment is given back at once.
uint8_t* map_huge(size_t bytes) {
  const size_t total = bytes + kHugePage;
  void* mapped = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t end = (aligned + bytes + 4095) & ~uintptr_t{4095};
  if (aligned > start) munmap(mapped, aligned - start);
  if (start + total > end) munmap(reinterpret_cast<void*>(end), start + total - end);
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<uint8_t*>(aligned);
}

}  // namespace

WeightMemory::WeightMemory(size_t bytes) : size_(bytes) {
  if (bytes >= kHugePage) {
    data_ = map_huge(bytes);
  } else if (void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64); p != nullptr) {
    data_ = static_cast<uint8_t*>(p);
    std::fill_n(data_, bytes, uint8_t{0});
  }
  if (data_ == nullptr) size_ = 0;
}

WeightMemory::~WeightMemory() {
  if (data_ == nullptr) return;
  if (size_ >= kHugePage) {
    munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

WeightMemory::WeightMemory(WeightMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

WeightMemory& WeightMemory::operator=(WeightMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void CpuWeight::decode_row(int row, float* out) const { unpack_row(panels_, row, out); }

Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix) {
  const int block = quant_info(matrix.type).block_size;
  if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.cols % block != 0 ||
      matrix.bytes.size() < matrix.row_bytes() * static_cast<size_t>(matrix.rows)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "weight of type {}: expected rows of a multiple of {} elements, got {} x {} in {} bytes",
                  quant_info(matrix.type).name, block, matrix.rows, matrix.cols, matrix.bytes.size());
  }
  const PanelShape shape = panel_shape(matrix.type, matrix.cols);
  auto weight = std::make_unique<CpuWeight>();
  PanelMatrix& panels = weight->panels_;
  panels = {nullptr, shape.panel_bytes, nullptr, matrix.rows, matrix.cols, shape.padded_cols, shape.type};
  const size_t panels_bytes = shape.panel_bytes * static_cast<size_t>(panels.n_panels());
  const size_t scale_bytes = shape.row_scales ? sizeof(float) * kPanelRows * panels.n_panels() : 0;
  weight->memory_ = WeightMemory(panels_bytes + scale_bytes);
  if (weight->memory_.data() == nullptr) {
    return errorf(ErrorCode::kResourceExhausted, "weight of {} x {}: {} bytes of memory refused", matrix.rows,
                  matrix.cols, panels_bytes + scale_bytes);
  }
  panels.data = weight->memory_.data();
  float* row_scales =
      scale_bytes > 0 ? reinterpret_cast<float*>(weight->memory_.data() + panels_bytes) : nullptr;
  panels.row_scales = row_scales;
  // The same split as in a product, so that on a NUMA machine each worker's panels are in its own memory.
  pool.for_ranges(panels.n_panels(), 1, [&](int64_t begin, int64_t end, int) {
    pack_panels(matrix, panels, row_scales, static_cast<int>(begin), static_cast<int>(end));
  });
  return weight;
}

}  // namespace penstock
