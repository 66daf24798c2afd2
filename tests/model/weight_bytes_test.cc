// What a model says of its size is what its matrices take: every one that it had packed, and
// nothing else.
#include <gtest/gtest.h>

#include <filesystem>

#include "model/model.h"
#include "support/device_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Counts what is packed.
class CountingOps final : public DeviceOps {
 public:
  CountingOps() : DeviceOps(make_ops("cpu", {.n_threads = 1}).value()) {}
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) override {
    return counted(DeviceOps::pack(matrix));
  }
  Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) override {
    return counted(DeviceOps::pack_grouped(matrix, first_row, n_rows));
  }
  int64_t bytes = 0;

 private:
  Result<std::unique_ptr<Weight>> counted(Result<std::unique_ptr<Weight>> weight) {
    if (weight) bytes += (*weight)->packed_bytes();
    return weight;
  }
};

void expect_all_counted(const fs::path& path) {
  const auto source = open_weights(path);
  if (!source) return;  // no model's folder
  CountingOps ops;
  const auto model = Model::load(**source, ops);
  if (!model) return;  // golden_test tells
  EXPECT_GT(ops.bytes, 0) << path;
  EXPECT_EQ((*model)->weight_bytes() - (*model)->table_bytes(), ops.bytes) << path;
  // A layer that is computed several times is read as often.
  const ModelConfig& config = (*model)->config();
  int64_t times = 1;
  for (int i = 0; i < config.n_layers; ++i) times += config.repeats(i) ? 1 : 0;
  EXPECT_LE((*model)->active_weight_bytes(), ops.bytes * times) << path;
}

TEST(WeightBytes, AreThoseOfEveryMatrixThatAGoldenModelHolds) {
  int n_models = 0;
  for (const char* kind : {"models", "encoders"}) {
    for (const auto& folder : fs::directory_iterator(tests_dir() / "golden" / kind)) {
      if (!folder.is_directory()) continue;
      ++n_models;
      expect_all_counted(folder.path());
      for (const auto& file : fs::directory_iterator(folder.path()))
        if (file.path().extension() == ".gguf") expect_all_counted(file.path());
    }
  }
  EXPECT_GT(n_models, 100);
}

}  // namespace
}  // namespace penstock
