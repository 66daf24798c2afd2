// The kernels of one instruction set. A table is selected at start-up, and all calls go through
// it.
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
  // null: no unit takes packed activations; not inherited from a lower table
  const TileKernels* tiles = nullptr;
  const StripKernels* strips = nullptr;
  const ScanKernels* scans = nullptr;
  const RecurrenceKernels* recurrence = nullptr;
  const ProbeKernels* probes = nullptr;
  // The table that this one extends, whose vector kernels it uses; null if it has its own.
  const KernelTable* extends = nullptr;
  // Emulates instructions that the processor may lack, for tests; used only if selected by name.
  bool emulated = false;
};

// Returns the tables that this machine can run, slowest first, emulated ones included; scalar
// always is the first. Kernels that an instruction set lacks are those of the next lower table that
// is not emulated.
std::span<const KernelTable> available_kernels();

// Returns the table with this name. "": the value of PENSTOCK_ISA if set, else the best table that
// is not emulated. Error: kInvalidArgument, with the available names.
Result<const KernelTable*> select_kernels(std::string_view name = {});

}  // namespace penstock
