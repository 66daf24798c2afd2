// Which layers' experts lie on the host beside a device (Ops::host()), and which on the device.
#pragma once
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "model/blocks/config.h"

namespace penstock {

// By layer: whether its experts are on the host.
using ExpertPlaces = std::vector<bool>;

// What a user asks for (EngineConfig).
struct ExpertWishes {
  int n_first = -1;  // layers from the first on; -1: nothing is asked for
  bool all = false;
  std::string override_tensor;  // before both

  bool any() const { return n_first >= 0 || all || !override_tensor.empty(); }
};

// Errors: kInvalidArgument: the model has no experts, an override is no PATTERN=CPU or
// PATTERN=CUDA0, or its pattern finds no tensor, one that is no expert's, or a part of a layer's
// experts.
Result<ExpertPlaces> wished_places(const WeightSource& source, const ModelConfig& config,
                                   const ExpertWishes& wishes);

// Estimates the bytes of weights on a device: those of experts by layer, and of all others.
struct DeviceBytes {
  std::vector<int64_t> experts;  // [n_layers]
  int64_t others = 0;
  int64_t looked_up = 0;  // the part of others of which a token reads one row

  int64_t all() const;
};
DeviceBytes device_bytes(const WeightSource& source, const ModelConfig& config);

// Puts the experts of as few layers on the host, from the first on, as leave weights of at most
// `room` bytes on the device; of all layers if no number does.
ExpertPlaces fitting_places(const DeviceBytes& bytes, int64_t room);

// Estimates the bytes that a step of n_tokens tokens with n_outputs rows of logits takes beside
// weights and cache.
int64_t step_bytes(const ModelConfig& config, int n_tokens, int n_outputs);

// "0-11 of 24", "none of 24", "0, 2-3 of 24".
std::string describe(const ExpertPlaces& places);

}  // namespace penstock
