// A model on a device that runs behind the host, shows no tensor and draws tokens itself: the
// engine gives the tokens that it gives on the CPU, also where the next step is planned before they
// are known.
#include <gtest/gtest.h>

#include "engine/model_engine.h"
#include "sampling/sampler.h"
#include "support/device_ops.h"

namespace penstock {
namespace {

std::unique_ptr<Ops> one_thread() {
  return make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
}

TEST(DeviceEngine, GivesTheTokensOfTheCpu) {
  auto device = std::make_unique<DeviceOps>(
      one_thread(),
      [](const SampleRow& row, std::span<float> logits) { return Sampler().draw(row, logits); });
  const DeviceOps& seen = *device;
  ModelEngine on_device(std::move(device), {}), on_cpu(one_thread(), {});
  expect_equal(on_device.run(requests_of_all_kinds()), on_cpu.run(requests_of_all_kinds()));
  EXPECT_GT(seen.n_drawn(), 100);
  EXPECT_GT(seen.n_ahead(), 10);
  EXPECT_GT(seen.n_replayed(), 10);
}

// A device that computes only: the host draws from rows that it reads.
TEST(DeviceEngine, GivesTheTokensOfTheCpuWhereTheHostDraws) {
  ModelEngine on_device(std::make_unique<DeviceOps>(one_thread()), {}), on_cpu(one_thread(), {});
  expect_equal(on_device.run(requests_of_all_kinds()), on_cpu.run(requests_of_all_kinds()));
}

}  // namespace
}  // namespace penstock
