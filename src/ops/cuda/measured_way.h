// Which of two ways computes a layer's experts in steps of many tokens: that which took less time so
// far for so many rows.
#pragma once
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

namespace penstock::cuda {

class MeasuredWay {
 public:
  enum Way : uint8_t { kOnDevice, kOnHost };

  // Each way is tried once, and the slower one again after a while.
  Way choose(int n_rows) {
    Class& own = class_of(n_rows);
    if (own.seconds[kOnDevice] == 0) return kOnDevice;
    if (own.seconds[kOnHost] == 0) return kOnHost;
    const Way faster = own.seconds[kOnDevice] <= own.seconds[kOnHost] ? kOnDevice : kOnHost;
    return ++own.n_chosen % kTriedAgain == 0 ? static_cast<Way>(1 - faster) : faster;
  }
  void took(Way way, int n_rows, std::chrono::duration<double> time) {
    double& kept = class_of(n_rows).seconds[way];
    const double seconds = time.count() / n_rows + 1e-12;
    kept = kept == 0 ? seconds : (3 * kept + seconds) / 4;
  }

 private:
  static constexpr int kTriedAgain = 256;
  struct Class {
    std::array<double, 2> seconds = {};  // of a row
    int n_chosen = 0;
  };
  // Rows between two powers of two.
  Class& class_of(int n_rows) { return classes_[std::bit_width(static_cast<unsigned>(n_rows))]; }
  std::array<Class, 33> classes_ = {};
};

}  // namespace penstock::cuda
