// What a rank reads of a file: its share of what is cut, and what every rank has.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "formats/temp_dir.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"
#include "model/load/stages.h"
#include "model/model.h"
#include "model/ranks.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::with_ranks;

// Bytes that this process has had read from storage; -1: the kernel does not count them.
int64_t n_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  for (int64_t bytes = 0; io >> name >> bytes;)
    if (name == "read_bytes:") return bytes;
  return -1;
}

// Out of memory with it: what is read next comes from storage.
void forget(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY);
  fsync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// Whether the storage under the file is one, and the kernel counts.
bool is_counted(const fs::path& path) {
  const auto size = static_cast<int64_t>(fs::file_size(path));
  forget(path);
  const int64_t before = n_read();
  std::ifstream file(path, std::ios::binary);
  std::string all(static_cast<size_t>(size), '\0');
  file.read(all.data(), size);
  return before >= 0 && n_read() - before >= size * 9 / 10;
}

// Wide rows, so that a rank's parts of them are many pages.
ModelConfig wide_model() {
  ModelConfig config = config_from_shape("llama-3.2-1b").value();
  config.n_layers = 2;
  config.layers.resize(2);
  config.vocab_size = 512, config.model_dim = 256, config.ffn_dim = 12288;
  config.n_heads = 48, config.n_kv_heads = 6, config.head_dim = 128;
  config.max_seq_len = 128;
  for (RopeConfig& rope : config.ropes) rope.rotary_dim = 128;
  return config;
}

constexpr int64_t kPage = 4096;

bool is_cut_by_inputs(std::string_view name) {
  return name.find("attn_output") != name.npos || name.find("ffn_down") != name.npos;
}

struct Read {
  int64_t to_open = 0;  // the header, and what the system reads around it
  int64_t to_load = 0;
};

// What one of the ranks, or of the stages, has had read. The kernel counts pages of the program
// itself too, which it reads again where memory is short: loading that read more than `most` is
// repeated.
Read read_by(const fs::path& path, Ops& ops, Stage stage, int64_t most) {
  Read read;
  for (int attempt = 0; attempt < 5; ++attempt) {
    forget(path);
    const int64_t before = n_read();
    const auto source = open_weights(path).value();
    const int64_t opened = n_read();
    EXPECT_TRUE(Model::load_shard(*source, ops, {}, {true, stage}).has_value());
    read = {opened - before, n_read() - opened};
    if (read.to_load <= most) break;
  }
  return read;
}

// The pages at the ends of a part are somebody else's too; blocks of an encoding that is cut inside
// are of two ranks.
int64_t at_ends(const TensorInfo& tensor, bool is_cut) {
  const auto block =
      static_cast<int64_t>(quant_bytes(tensor.type, quant_info(tensor.type).block_size));
  return (is_cut && is_cut_by_inputs(tensor.name) ? tensor.shape[0] : 1) * (kPage + 2 * block);
}

class ShardReading : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_gguf(*make_synthetic_source(wide_model(), GetParam()).value(), path_));
    if (!is_counted(path_))
      GTEST_SKIP() << path_ << " is not read from storage, or nobody counts it";
  }
  const TempDir dir_;
  const fs::path path_ = dir_ / "wide.gguf";
};

INSTANTIATE_TEST_SUITE_P(Types, ShardReading, ::testing::Values("f32", "q8_0", "q4_k"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ShardReading, IsTheRanksShareOfTheFile) {
  const auto size = static_cast<double>(fs::file_size(path_));
  const auto source = open_weights(path_).value();
  for (const int n_ranks : {2, 3}) {
    int64_t share = 0, ends = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      const bool is_cut = tensor.shape.size() > 1;
      const auto bytes = static_cast<int64_t>(tensor.bytes.size());
      share += is_cut ? bytes / n_ranks : bytes;
      ends += at_ends(tensor, is_cut);
    }
    for (int reader = 0; reader < n_ranks; ++reader) {
      Read read;
      with_ranks(n_ranks, [&](int rank, Ops& ops) {
        if (rank == reader) read = read_by(path_, ops, {}, share + ends);
      });
      RecordProperty(fmt::format("share_{}_of_{}", reader, n_ranks).c_str(),
                     fmt::format("{:.3f}", static_cast<double>(read.to_load) / size));
      EXPECT_LE(read.to_load, share + ends)
          << "rank " << reader << " of " << n_ranks << " of " << size;
      EXPECT_GE(read.to_load + read.to_open, share * 9 / 10) << "what was read was not counted";
    }
  }
}

TEST_P(ShardReading, IsTheStagesLayers) {
  const auto size = static_cast<double>(fs::file_size(path_));
  const auto source = open_weights(path_).value();
  const ModelConfig config = read_config(*source).value();
  const auto stages = cut_stages(config, layer_bytes(*source, config), 2).value();
  for (int index = 0; index < 2; ++index) {
    int64_t own = 0, ends = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      const int layer =
          tensor.name.starts_with("blk.") ? tensor.name[4] - '0' : stages[index].first;
      if (layer < stages[index].first || layer >= stages[index].first + stages[index].count)
        continue;
      own += static_cast<int64_t>(tensor.bytes.size()), ends += at_ends(tensor, false);
    }
    const auto ops = make_ops("cpu", {.n_threads = 1}).value();
    const Read read = read_by(path_, *ops, {index, 2}, own + ends);
    RecordProperty(fmt::format("stage_{}", index).c_str(),
                   fmt::format("{:.3f}", static_cast<double>(read.to_load) / size));
    EXPECT_LE(read.to_load, own + ends) << "stage " << index << " of " << size;
    EXPECT_GE(read.to_load + read.to_open, own * 9 / 10) << "what was read was not counted";
  }
}

}  // namespace
}  // namespace penstock
