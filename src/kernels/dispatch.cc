// THE list of instruction sets, slowest first. A new one is a folder, a row here and one in
// flags.cmake.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"
#if defined(__x86_64__)
#include "kernels/amx/tables.h"
#include "kernels/avx2/tables.h"
#include "kernels/avx512/tables.h"
#include "kernels/avx512bf16/tables.h"
#include "kernels/avxvnni/tables.h"
#elif defined(__aarch64__)
#include "kernels/neon/tables.h"
#include "kernels/neondot/tables.h"
#endif
#include "kernels/scalar/tables.h"

namespace penstock {
namespace {

struct Row {
  KernelTable table;  // null members: the instruction set has no kernels of its own
  bool runs_here;
};

const KernelTable& best_of(std::span<const KernelTable> tables) {
  return *std::find_if(tables.rbegin(), tables.rend(),
                       [](const KernelTable& t) { return !t.emulated; });
}

std::vector<KernelTable> make_tables() {
  [[maybe_unused]] const CpuFeatures& cpu = cpu_features();
  const Row rows[] = {
      {{.name = "scalar",
        .gemm = &kScalarGemmKernels,
        .vector = &kScalarVectorKernels,
        .attention = &kScalarAttentionKernels,
        .strips = &kScalarStripKernels,
        .scans = &kScalarScanKernels,
        .recurrence = &kScalarRecurrenceKernels,
        .probes = &kScalarProbeKernels},
       true},
#if defined(__x86_64__)
      {{.name = "avx2",
        .gemm = &kAvx2GemmKernels,
        .vector = &kAvx2VectorKernels,
        .attention = &kAvx2AttentionKernels,
        .strips = &kAvx2StripKernels,
        .scans = &kAvx2ScanKernels,
        .recurrence = &kAvx2RecurrenceKernels,
        .probes = &kAvx2ProbeKernels},
       cpu.avx2},
      {{.name = "avxvnni", .gemm = &kAvxVnniGemmKernels, .probes = &kAvxVnniProbeKernels},
       cpu.avx2 && cpuid_bit(7, 1, CpuidRegister::kEax, 4)},
      {{.name = "avx512",
        .gemm = &kAvx512GemmKernels,
        .vector = &kAvx512VectorKernels,
        .attention = &kAvx512AttentionKernels,
        .strips = &kAvx512StripKernels,
        .scans = &kAvx512ScanKernels,
        .recurrence = &kAvx512RecurrenceKernels,
        .probes = &kAvx512ProbeKernels},
       cpu.avx512},
      {{.name = "avx512bf16",
        .attention = &kAvx512Bf16AttentionKernels,
        .tiles = &kAvx512Bf16TileKernels,
        .probes = &kAvx512Bf16ProbeKernels},
       cpu.avx512_bf16},
#ifdef PENSTOCK_AMX_EMULATION
      {{.name = "amx_emulated",
        .attention = &amx_emulated::kAttentionKernels,
        .tiles = &amx_emulated::kTileKernels,
        .emulated = true},
       cpu.avx512_bf16},
#endif
      {{.name = "amx",
        .attention = &amx::kAttentionKernels,
        .tiles = &amx::kTileKernels,
        .probes = &amx::kProbeKernels},
       cpu.amx},
#elif defined(__aarch64__)
      {{.name = "neon",
        .gemm = &kNeonGemmKernels,
        .vector = &kNeonVectorKernels,
        .attention = &kNeonAttentionKernels,
        .strips = &kNeonStripKernels,
        .scans = &kNeonScanKernels,
        .recurrence = &kNeonRecurrenceKernels,
        .probes = &kNeonProbeKernels},
       true},
      {{.name = "neondot", .gemm = &kNeonDotGemmKernels, .probes = &kNeonDotProbeKernels},
       hwcap_bit(20)},  // ASIMDDP
#endif
  };
  std::vector<KernelTable> tables;
  tables.reserve(std::size(rows));  // tables point to each other, so they must not move
  for (const Row& row : rows) {
    if (!row.runs_here) continue;
    KernelTable table = row.table;
    if (!tables.empty()) {
      const KernelTable& lower = best_of(tables);
      if (table.vector == nullptr) table.extends = &lower;
      if (table.gemm == nullptr) table.gemm = lower.gemm;
      if (table.vector == nullptr) table.vector = lower.vector;
      if (table.attention == nullptr) table.attention = lower.attention;
      if (table.strips == nullptr) table.strips = lower.strips;
      if (table.scans == nullptr) table.scans = lower.scans;
      if (table.recurrence == nullptr) table.recurrence = lower.recurrence;
      if (table.probes == nullptr) table.probes = lower.probes;
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
  if (name.empty() || name == "auto") return &best_of(tables);
  std::string names;
  for (const KernelTable& table : tables) {
    if (name == table.name) return &table;
    names += names.empty() ? table.name : std::string(", ") + table.name;
  }
  return errorf(ErrorCode::kInvalidArgument,
                "instruction set '{}' is not available here: expected one of {}", name, names);
}

}  // namespace penstock
