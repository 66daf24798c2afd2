// THE list of instruction sets, slowest first. A new one is a row here, a folder and its flags in
// flags.cmake.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/cpu_features.h"
#include "kernels/gemm_tables.h"
#include "kernels/kernel_table.h"
#include "kernels/scan_kernels.h"
#include "kernels/strip_kernels.h"
#include "kernels/vector_kernels.h"

namespace penstock {
namespace {

struct Row {
  KernelTable table;  // null where this instruction set has no kernels of its own
  bool runs_here;
};

std::vector<KernelTable> make_tables() {
  [[maybe_unused]] const CpuFeatures& cpu = cpu_features();
  const Row rows[] = {
      {{"scalar", &kScalarGemmKernels, &kScalarVectorKernels, &kScalarAttentionKernels, nullptr,
        &kScalarStripKernels, &kScalarScanKernels},
       true},
#if defined(__x86_64__)
      {{"avx2", &kAvx2GemmKernels, &kAvx2VectorKernels, &kAvx2AttentionKernels, nullptr, &kAvx2StripKernels,
        &kAvx2ScanKernels},
       cpu.avx2},
      {{"avxvnni", &kAvxVnniGemmKernels, nullptr, nullptr, nullptr}, cpu.avx_vnni},
      {{"avx512", &kAvx512GemmKernels, &kAvx512VectorKernels, &kAvx512AttentionKernels, nullptr,
        &kAvx512StripKernels, &kAvx512ScanKernels},
       cpu.avx512},
      {{"amx", nullptr, nullptr, &kAmxAttentionKernels, &kAmxTileKernels}, cpu.amx},
#elif defined(__aarch64__)
      {{"neon", &kNeonGemmKernels, &kNeonVectorKernels, &kNeonAttentionKernels, nullptr, &kNeonStripKernels,
        &kNeonScanKernels},
       cpu.neon},
      {{"neondot", &kNeonDotGemmKernels, nullptr, nullptr, nullptr}, cpu.neon_dot},
#endif
  };
  std::vector<KernelTable> tables;
  for (const Row& row : rows) {
    if (!row.runs_here) continue;
    KernelTable table = row.table;
    if (!tables.empty()) {
      const KernelTable& lower = tables.back();
      if (table.gemm == nullptr) table.gemm = lower.gemm;
      if (table.vector == nullptr) table.vector = lower.vector;
      if (table.attention == nullptr) table.attention = lower.attention;
      if (table.strips == nullptr) table.strips = lower.strips;
      if (table.scans == nullptr) table.scans = lower.scans;
    }
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

std::span<const KernelTable> available_kernels() {
  static const std::vector<KernelTable> tables = make_tables();
  return tables;
}

Result<const KernelTable*> select_kernels(std::string_view name) {
  const std::span<const KernelTable> tables = available_kernels();
  if (name.empty()) {
    if (const char* forced = std::getenv("PENSTOCK_ISA"); forced != nullptr) name = forced;
  }
  if (name.empty() || name == "auto") return &tables.back();
  std::string names;
  for (const KernelTable& table : tables) {
    if (name == table.name) return &table;
    names += names.empty() ? table.name : std::string(", ") + table.name;
  }
  return errorf(ErrorCode::kInvalidArgument, "instruction set '{}' is not available here: expected one of {}",
                name, names);
}

}  // namespace penstock
