// What the CPU backend does for how many rows of activations, in words: for reports.
#pragma once
#include <string>
#include <vector>

namespace penstock {

// How weights of one kind are multiplied with `rows` rows and more, up to those of the next plan of
// the same kind.
struct ProductPlan {
  // "nibbles", "bytes", "grid", "codes", "whole-bytes", "whole-codes", "f32", "f16" or "bf16".
  std::string weights;
  int rows;  // from so many on
  // "f32", "int8", "int8-tiles", "int8-row-tiles" or "bf16-tiles".
  std::string path;
  // "streams", "panel", "unpacked", ... (docs/design/kernels.md)
  std::string strategy;
  int block;  // most rows that are multiplied together
  // of 16 weight rows that are multiplied together
  int panels;
  std::string prefetch;  // "none", "step", "units" or bytes
};

// Returns the plans of the instruction set in use, as this processor reads memory and unpacks tiles
// fastest; none where PENSTOCK_ISA names no instruction set of this machine.
std::vector<ProductPlan> product_plans();

}  // namespace penstock
