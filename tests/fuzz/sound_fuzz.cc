// Any bytes are a sound of at most as many seconds as allowed, or one error. The number of samples is
// what the header says.
#include "sounds/sound.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const auto file = std::as_bytes(std::span(data, size));
  const SoundLimits limits{.max_bytes = 1 << 16, .max_seconds = 2, .max_channels = 4};
  constexpr int kRate = 16000;
  const auto info = read_sound_info(file, limits);
  const auto samples = decode_sound(file, kRate, limits);
  if (!samples) return 0;
  const bool fits = info && n_samples_at(*info, kRate) == static_cast<int64_t>(samples->size()) &&
                    samples->size() <= size_t{2} * kRate;
  if (!fits) __builtin_trap();
  return 0;
}
