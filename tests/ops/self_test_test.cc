// A backend is trusted when it computes what the CPU computes: the emulated device passes, and does
// not with results that are wrong, a device that is lost or memory that is refused; then, and
// without a device, there is the CPU and a reason.
#include "ops/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#ifdef PENSTOCK_CUDA_EMULATION
#include "emulation/cuda/trouble.h"
#endif

namespace penstock {
namespace {

#ifdef PENSTOCK_CUDA_EMULATION
constexpr std::string_view kEmulatedOrCpu[] = {"cuda_emulated", "cpu"};

class SelfTest : public testing::Test {
 protected:
  void TearDown() override {
    cuda::fail_emulated_call(0);
    cuda::make_emulated_reads_wrong(false);
  }
};

TEST_F(SelfTest, TheEmulatedDevicePasses) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1}).value();
  const auto cpu = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  const Status passed = self_test(*ops, *cpu);
  EXPECT_TRUE(passed) << passed.error().message;
  const BackendChoice choice = choose_among(kEmulatedOrCpu);
  EXPECT_EQ(choice.name, "cuda_emulated");
  EXPECT_EQ(choice.why, "");
}

TEST_F(SelfTest, WrongResultsAreNotTrusted) {
  cuda::make_emulated_reads_wrong(true);
  const BackendChoice choice = choose_among(kEmulatedOrCpu);
  EXPECT_EQ(choice.name, "cpu");
  EXPECT_TRUE(choice.faulty);
  EXPECT_THAT(choice.why, testing::HasSubstr("emulated computes"));
  EXPECT_THAT(choice.why, testing::HasSubstr("with an error of"));
}

TEST_F(SelfTest, ADeviceThatFailsIsNotTaken) {
  for (const auto kind : {cuda::EmulatedCalls::kLaunches, cuda::EmulatedCalls::kOthers,
                          cuda::EmulatedCalls::kMemory}) {
    for (const int at : {1, 7}) {
      cuda::fail_emulated_call(at, kind);
      const BackendChoice choice = choose_among(kEmulatedOrCpu);
      EXPECT_EQ(choice.name, "cpu") << at;
      EXPECT_TRUE(choice.faulty);
      EXPECT_THAT(choice.why, testing::HasSubstr("emulated device"));
      cuda::fail_emulated_call(0);
    }
  }
}

#endif  // PENSTOCK_CUDA_EMULATION

TEST(ChooseBackend, WithoutADeviceItIsTheCpuAndSaysWhy) {
  EXPECT_EQ(choose_backend("cuda"), "cuda");
  EXPECT_EQ(choose_backend("abacus"), "abacus");
  if (make_ops("cuda", {.n_threads = 1})) GTEST_SKIP() << "there is a GPU";
  constexpr std::string_view kNames[] = {"cuda", "cpu"};
  const BackendChoice choice = choose_among(kNames);
  EXPECT_EQ(choice.name, "cpu");
  EXPECT_FALSE(choice.faulty);
  EXPECT_THAT(choice.why, testing::HasSubstr("backend cuda: "));
  EXPECT_EQ(choose_backend("auto"), "cpu");
  EXPECT_EQ(choose_backend(""), "cpu");
}

}  // namespace
}  // namespace penstock
