// Experts that are mapped from a file give the same bits as those in memory; what cannot be written
// is one clear error.
#include "model/sources/expert_file.h"
#include "model/arch/read_config.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/mapped_file.h"
#include "formats/temp_dir.h"
#include "model/load/stages.h"
#include "model/ranks.h"
#include "model/runner.h"
#include "model/sources/ftype.h"
#include "model/sources/packed_cache.h"
#include "model/sources/quantizing_source.h"
#include "model/sources/synthetic.h"
#include "model/sources/synthetic_layers.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Rows;
using testing::Runner;

const std::vector<int> kExpertTokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

// Every tiny mixture of experts, of both formats.
std::vector<fs::path> mixtures() {
  std::vector<fs::path> paths;
  for (const char* kind : {"models", "mxfp4"}) {
    for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / kind)) {
      for (const fs::path& path : {entry.path(), entry.path() / "model.gguf"}) {
        if (!fs::exists(path)) continue;
        const auto source = open_weights(path).value();
        const ModelConfig config = read_config(*source).value();
        if (std::ranges::any_of(config.layers, &LayerConfig::moe)) paths.push_back(path);
      }
    }
  }
  std::ranges::sort(paths);
  return paths;
}

struct LoadedMixture {
  Rows logits;
  int64_t offloaded = 0, bytes = 0;
};

class ExpertFileTest : public ::testing::Test {
 protected:
  // experts: in a file. cached: with a cache of packed weights besides.
  LoadedMixture load(const WeightSource& source, bool experts, bool cached = false,
                     const std::string& recoding = "") const {
    const auto ops = make_ops("cpu", {.n_threads = 2, .batch_invariant = true}).value();
    const PackedCache cache(dir_ / "packed");
    ShardLoad how;
    how.packed = {cached ? &cache : nullptr, recoding, experts ? folder_ : fs::path()};
    const auto model = Model::load_shard(source, *ops, {}, how);
    EXPECT_TRUE(model) << source.path() << ": " << model.error().message;
    if (!model) return {};
    return {Runner(**model, *ops).run(0, kExpertTokens),
            (*model)->offloaded_bytes() - (*model)->table_bytes(), (*model)->weight_bytes()};
  }
  Result<std::unique_ptr<Model>> open(const fs::path& path, const fs::path& folder) {
    source_ = open_weights(path).value();
    ops_ = make_ops("cpu", {.n_threads = 1}).value();
    ShardLoad how;
    how.packed.experts_folder = folder;
    return Model::load_shard(*source_, *ops_, {}, how);
  }

  TempDir dir_;
  fs::path folder_ = dir_ / "cache" / "deeper";
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Ops> ops_;
};

TEST_F(ExpertFileTest, SameBitsForEveryMixture) {
  const std::vector<fs::path> paths = mixtures();
  EXPECT_GE(paths.size(), 40u);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path);
    const auto source = open_weights(path).value();
    const LoadedMixture in_memory = load(*source, false), mapped = load(*source, true);
    EXPECT_EQ(mapped.logits, in_memory.logits);
    EXPECT_EQ(mapped.bytes, in_memory.bytes);
    EXPECT_EQ(in_memory.offloaded, 0);
    EXPECT_GT(mapped.offloaded, 0);
    EXPECT_LT(mapped.offloaded, mapped.bytes);
  }
  EXPECT_TRUE(fs::is_empty(folder_)) << "the file has a name";
}

// The first start moves experts to a file without a name, and then takes what it has kept; the
// second maps that.
TEST_F(ExpertFileTest, SameBitsFromPackedWeights) {
  for (const char* name : {"mixtral", "gpt_oss", "qwen3_next", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const auto source = open_weights(tests_dir() / "golden" / "models" / name).value();
    const LoadedMixture in_memory = load(*source, false);
    for (int start = 0; start < 2; ++start) {
      const LoadedMixture mapped = load(*source, true, true);
      EXPECT_EQ(mapped.logits, in_memory.logits) << start;
      EXPECT_GT(mapped.offloaded, 0) << start;
    }
    EXPECT_EQ(load(*source, false, true).logits, in_memory.logits);  // the same file serves without
  }
}

TEST_F(ExpertFileTest, SameBitsForEncodingsAtLoad) {
  for (const char* recoding :
       {"q8_0", "q4_k_m", "int8", "int4", "int2", "nf4", "fp4", "fp8", "w8a8"}) {
    SCOPED_TRACE(recoding);
    auto source =
        make_quantizing_source(
            open_weights(tests_dir() / "golden" / "models" / "qwen3_moe").value(), recoding, 1)
            .value();
    const LoadedMixture in_memory = load(*source, false, false, recoding),
                        mapped = load(*source, true, false, recoding);
    EXPECT_EQ(mapped.logits, in_memory.logits);
    EXPECT_GT(mapped.offloaded, 0);
  }
}

// Every encoding that experts can have, in a file or by another quantizer.
TEST_F(ExpertFileTest, SameBitsForEveryEncoding) {
  ModelConfig config = config_from_shape("qwen3-30b-a3b").value();
  config.n_layers = 2, config.layers.resize(2), config.vocab_size = 512, config.max_seq_len = 128;
  config.model_dim = config.experts.ffn_dim = 256, config.experts.count = 8,
  config.experts.routing.n_active = 2;
  config.n_heads = 4, config.n_kv_heads = 2, config.head_dim = 64;
  for (RopeConfig& rope : config.ropes) rope.rotary_dim = 64;
  std::vector<std::string> names;
  for (const QuantTypeInfo& type : quant_types())
    if (find_file_type(type.name)) names.emplace_back(type.name);
  for (const LayerCoding& coding : layer_codings()) names.emplace_back(coding.name);
  std::set<int64_t> sizes;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto source = make_synthetic_source(config, name);
    ASSERT_TRUE(source) << source.error().message;
    const LoadedMixture in_memory = load(**source, false), mapped = load(**source, true);
    EXPECT_EQ(mapped.logits, in_memory.logits);
    sizes.insert(mapped.offloaded);
  }
  EXPECT_GE(names.size(), 25u);
  EXPECT_GE(sizes.size(), 10u) << "encodings that differ";
}

// A share of every expert's width, and whatever lies before it in a block; and the layers of two
// stages.
TEST_F(ExpertFileTest, SameBitsForShares) {
  for (const char* name :
       {"mixtral", "gpt_oss", "qwen2_moe", "granitemoe", "nemotron_h_moe_latent"}) {
    SCOPED_TRACE(name);
    const fs::path path = tests_dir() / "golden" / "models" / name;
    const auto of_ranks = [&](bool experts) {
      std::vector<Rows> logits(2);
      testing::with_ranks(2, [&](int rank, Ops& ops) {
        const auto source = open_weights(path).value();
        ShardLoad how;
        if (experts) how.packed.experts_folder = folder_;
        const auto model = Model::load_shard(*source, ops, {}, how);
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_EQ((*model)->offloaded_bytes() > 0, experts);
        logits[static_cast<size_t>(rank)] = Runner(**model, ops).run(0, kExpertTokens);
      });
      return logits;
    };
    EXPECT_EQ(of_ranks(true), of_ranks(false));
  }
}

// What was just written is in memory, so nothing is read.
TEST_F(ExpertFileTest, CountsWhatIsReadFromTheDisk) {
  const auto model = open(tests_dir() / "golden" / "models" / "mixtral", folder_);
  ASSERT_TRUE(model) << model.error().message;
  Runner(**model, *ops_).run(0, kExpertTokens);
  EXPECT_EQ(ops_->expert_bytes_read(), 0);
}

TEST_F(ExpertFileTest, AModelWithoutExpertsIsRefused) {
  const auto model = open(tests_dir() / "golden" / "models" / "llama3", folder_);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(model.error().message, HasSubstr("experts_offload"));
  EXPECT_THAT(model.error().message, HasSubstr("llama"));
}

TEST_F(ExpertFileTest, AFolderThatCannotBeWritten) {
  write_bytes(dir_ / "file", "x");
  const auto model = open(tests_dir() / "golden" / "models" / "mixtral", dir_ / "file" / "below");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kIo);
  EXPECT_THAT(model.error().message,
              HasSubstr("experts_offload: folder " + (dir_ / "file").string()));
}

// The device takes no more, in the middle of the experts.
TEST_F(ExpertFileTest, AFullDisk) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);  // it must not come to that
  const rlimit limit{10000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto model = open(tests_dir() / "golden" / "models" / "mixtral", folder_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(model.error().message, HasSubstr(folder_.string()));
  EXPECT_THAT(model.error().message, HasSubstr("limit 10000"));
  EXPECT_TRUE(fs::is_empty(folder_)) << "something is left";
}

TEST_F(ExpertFileTest, NeedsAFolder) {
  for (const char* name : {"XDG_CACHE_HOME", "HOME", "PENSTOCK_PACKED_CACHE"}) unsetenv(name);
  const auto none = expert_folder("");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("experts_offload: needs HOME or XDG_CACHE_HOME"));
  EXPECT_EQ(expert_folder("/x/y").value(), "/x/y");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(expert_folder("off").value(), "/home/me/.cache/penstock");
}

// Beside a device the CPU computes them where they are mapped, in both kinds of files.
TEST_F(ExpertFileTest, BesideADevice) {
  if (const auto made = make_ops("cuda_emulated", {}); !made) GTEST_SKIP() << made.error().message;
  for (const char* name : {"mixtral", "gpt_oss", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const auto source = open_weights(tests_dir() / "golden" / "models" / name).value();
    const Rows in_memory = load(*source, false).logits;
    const PackedCache cache(dir_ / "packed");
    Rows before;
    for (const bool cached : {false, true, true}) {
      const auto ops = make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = true}).value();
      ShardLoad how;
      how.packed = {cached ? &cache : nullptr, "", folder_};
      const auto model = Model::load_shard(*source, *ops, {}, how);
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_GT((*model)->offloaded_bytes(), 0);
      const Rows logits = Runner(**model, *ops).run(0, kExpertTokens);
      EXPECT_LE(testing::max_difference(logits, in_memory), 1e-3f);
      if (before.empty()) before = logits;
      EXPECT_EQ(logits, before);
    }
  }
}

// By the names of both formats: experts, not what is shared or dense.
TEST_F(ExpertFileTest, BytesOfExpertsInAFile) {
  for (const fs::path& path : mixtures()) {
    SCOPED_TRACE(path);
    const auto source = open_weights(path).value();
    const ModelConfig config = read_config(*source).value();
    const auto n_layers =
        std::ranges::count_if(config.layers, [](const LayerConfig& layer) { return layer.moe; });
    const ExpertsConfig& experts = config.experts;
    const int64_t matrices = config.ffn.gated ? 3 : 2, n = int64_t{n_layers} * experts.count,
                  of_groups = experts.group_size > 0 ? n / experts.group_size : 0,
                  weights = (n * experts.ffn_dim + of_groups * experts.group_dim) * matrices *
                            config.expert_dim(),
                  biases = n * ((config.ffn.gated ? 2 : 1) * config.experts.ffn_dim +
                                config.expert_dim());
    const int64_t bytes = expert_bytes(*source, config);
    std::vector<int64_t> possible = {weights * 17 / 32, weights * 17 / 32 + biases * 2,
                                     weights * 17 / 32 + biases * 4};
    // or a factor of each
    for (const int64_t size : {2, 4})
      for (const int64_t bias : {int64_t{0}, biases * size, biases * 4, n * 4})
        possible.push_back(weights * size + bias);
    EXPECT_THAT(possible, ::testing::Contains(bytes));
  }
  const auto dense = open_weights(tests_dir() / "golden" / "models" / "llama3").value();
  EXPECT_EQ(expert_bytes(*dense, read_config(*dense).value()), 0);
}

// Pages that the system was told to drop are counted and asked for; then they come.
TEST_F(ExpertFileTest, ReadsWhatIsMissing) {
  const std::string text(size_t{1} << 20, 'x');
  write_bytes(dir_ / "file", text);
  const int file = ::open((dir_ / "file").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(fsync(file), 0);
  const auto map = MappedFile::open(dir_ / "file").value();
  EXPECT_EQ(read_missing(map.bytes()), 0) << "it was just written";
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
  const int64_t missing = read_missing(map.bytes());
  if (missing == 0) GTEST_SKIP() << "this file system drops nothing";
  EXPECT_EQ(missing, int64_t{1} << 20);
  EXPECT_EQ(map.bytes()[text.size() - 1], std::byte{'x'});
  for (int i = 0; i < 1000 && read_missing(map.bytes()) > 0; ++i) usleep(1000);
  EXPECT_EQ(read_missing(map.bytes()), 0);
}

}  // namespace
}  // namespace penstock
