// The kernels of one instruction set. Chosen once at start-up; everything above calls through the table.
#pragma once
#include <span>
#include <string_view>

#include "base/result.h"

namespace penstock {

struct GemmKernels;
struct TileKernels;
struct VectorKernels;
struct AttentionKernels;
struct StripKernels;
struct ScanKernels;
struct RecurrenceKernels;
struct ProbeKernels;

struct KernelTable {
  const char* name;  // "avx512"
  const GemmKernels* gemm = nullptr;
  const VectorKernels* vector = nullptr;
  const AttentionKernels* attention = nullptr;
  const TileKernels* tiles = nullptr;  // null where no unit wants packed activations; no fallback
  const StripKernels* strips = nullptr;
  const ScanKernels* scans = nullptr;
  const RecurrenceKernels* recurrence = nullptr;
  const ProbeKernels* probes = nullptr;
  // The table that this one only adds to: it has no vector kernels of its own. Null for one that stands alone.
  const KernelTable* extends = nullptr;
  bool emulated =
      false;  // instructions that the processor need not have, in software: for tests, used where it is named
};

// The tables this machine can run, slowest first but for emulated ones; the first one (scalar) always exists. A sub-table that
// an instruction set does not have is that of the next lower one that is not emulated.
std::span<const KernelTable> available_kernels();

// name "": the value of PENSTOCK_ISA if set, else the best table here that is not emulated. Error: kInvalidArgument, with the
// available names.
Result<const KernelTable*> select_kernels(std::string_view name = {});

}  // namespace penstock
