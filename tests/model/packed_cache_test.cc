// Weights that are mapped from an earlier start give the same bits as packed ones; files that do
// not fit any more are made anew.
#include "model/sources/packed_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "formats/temp_dir.h"
#include "model/ranks.h"
#include "model/runner.h"
#include "model/sources/quantizing_source.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::Rows;
using testing::Runner;

struct Loaded {
  Rows logits;
  bool mapped = false;
};

class PackedCacheTest : public ::testing::Test {
 protected:
  Loaded load(const fs::path& path, const std::string& recoding = "", bool with_cache = true) {
    auto source = open_weights(path).value();
    if (!recoding.empty()) source = make_quantizing_source(std::move(source), recoding, 2).value();
    const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
    const auto model =
        with_cache ? Model::load(*source, *ops, {}, cache(), recoding) : Model::load(*source, *ops);
    EXPECT_TRUE(model) << path << ": " << model.error().message;
    if (!model) return {};
    if ((*model)->mapped_bytes() > 0) {
      EXPECT_EQ((*model)->mapped_bytes(), (*model)->weight_bytes());
    }
    const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    return {Runner(**model, *ops).run(0, tokens), (*model)->mapped_bytes() > 0};
  }
  PackedCache cache() const { return PackedCache(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder_, none)) found.push_back(entry.path());
    return found;
  }
  // A model that a test may change.
  fs::path copy_of_model(const std::string& name = "m.gguf") {
    fs::copy_file(models_dir() / "penstock-stories-1m-q8_0.gguf", dir_ / name);
    return dir_ / name;
  }

  TempDir dir_;
  fs::path folder_ = dir_ / "cache" / "deeper";
};

// Every architecture and naming: fused matrices, experts, transposed and ternary ones.
TEST_F(PackedCacheTest, SameBitsForEveryArchitecture) {
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "models")) {
    for (const fs::path& path : {entry.path(), entry.path() / "model.gguf"}) {
      if (!fs::exists(path)) continue;
      // each alone: the files of others are looked through at every write
      folder_ = dir_ / path.parent_path().filename();
      const Loaded packed = load(path, "", false), first = load(path), second = load(path);
      EXPECT_FALSE(first.mapped) << path;
      EXPECT_TRUE(second.mapped) << path;
      EXPECT_EQ(first.logits, packed.logits) << path;
      EXPECT_EQ(second.logits, packed.logits) << path;
    }
  }
}

// What each of several ranks, or of two stages, has of a model; whatever lies before its part in a
// block.
TEST_F(PackedCacheTest, SameBitsForShares) {
  const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  const auto of_ranks = [&](const fs::path& path, const std::string& recoding, int n_ranks,
                            bool mapped) {
    std::vector<Rows> logits(static_cast<size_t>(n_ranks));
    testing::with_ranks(n_ranks, [&](int rank, Ops& ops) {
      auto source = open_weights(path).value();
      if (!recoding.empty())
        source = make_quantizing_source(std::move(source), recoding, 1).value();
      const PackedCache own = cache();
      const auto model = Model::load_shard(*source, ops, {}, {true, {}, {&own, recoding}});
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_EQ((*model)->mapped_bytes(), mapped ? (*model)->weight_bytes() : 0) << path;
      logits[static_cast<size_t>(rank)] = Runner(**model, ops).run(0, tokens);
    });
    return logits;
  };
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "models")) {
    SCOPED_TRACE(entry.path());
    folder_ = dir_ / entry.path().filename();
    const auto packed = of_ranks(entry.path(), "", 2, false);
    EXPECT_EQ(of_ranks(entry.path(), "", 2, true), packed);
    EXPECT_EQ(files().size(), 2u);
  }
  // Heads that end inside of blocks and groups.
  folder_ = dir_ / "three";
  const fs::path stories = models_dir() / "penstock-stories-1m-q8_0.gguf",
                 llama = tests_dir() / "golden" / "models" / "llama3";
  const auto by_three = of_ranks(stories, "", 3, false);
  EXPECT_EQ(of_ranks(stories, "", 3, true), by_three);
  for (const char* recoding : {"q8_0", "int4"}) {
    folder_ = dir_ / recoding;
    const auto recoded = of_ranks(llama, recoding, 2, false);
    EXPECT_EQ(of_ranks(llama, recoding, 2, true), recoded) << recoding;
  }
}

TEST_F(PackedCacheTest, SameBitsForEncodingsAtLoad) {
  const fs::path llama = tests_dir() / "golden" / "models" / "llama3";
  std::vector<Rows> all;
  for (const char* type : {"", "q8_0", "int8", "int4", "nf4", "w8a8"}) {
    const Loaded first = load(llama, type), second = load(llama, type);
    EXPECT_FALSE(first.mapped) << type;
    EXPECT_TRUE(second.mapped) << type;
    EXPECT_EQ(first.logits, second.logits) << type;
    EXPECT_EQ(std::ranges::count(all, first.logits), 0)
        << type << ": another encoding's file was taken";
    all.push_back(first.logits);
  }
  EXPECT_EQ(files().size(), all.size());
}

// Nothing of a matrix is read, so nothing is encoded, when it was packed before.
TEST_F(PackedCacheTest, EncodesNothingTheSecondTime) {
  class Counting final : public WeightSource {
   public:
    Counting(std::unique_ptr<WeightSource> inner) : inner_(std::move(inner)) {}
    Naming naming() const override { return inner_->naming(); }
    const fs::path& path() const override { return inner_->path(); }
    const nlohmann::json& config() const override { return inner_->config(); }
    const nlohmann::json& generation_config() const override { return inner_->generation_config(); }
    std::span<const TensorInfo> tensors() const override { return inner_->tensors(); }
    std::optional<std::string> side_file(std::string_view name) const override {
      return inner_->side_file(name);
    }
    std::vector<SourceFile> files() const override { return inner_->files(); }
    void drop(const TensorInfo& tensor) const override { inner_->drop(tensor); }
    const TensorInfo* find(std::string_view name) const override {
      const TensorInfo* found = inner_->find(name);
      matrices += found != nullptr && found->shape.size() > 1 ? 1 : 0;
      return found;
    }
    mutable int matrices = 0;

   private:
    std::unique_ptr<WeightSource> inner_;
  };
  for (const char* name : {"llama3", "phi3", "mixtral", "gpt2"}) {
    const auto ops = make_ops("cpu", {.n_threads = 1}).value();
    const Counting source(open_weights(tests_dir() / "golden" / "models" / name).value());
    ASSERT_TRUE(Model::load(source, *ops, {}, cache(), ""));
    EXPECT_GT(source.matrices, 0);
    source.matrices = 0;
    ASSERT_TRUE(Model::load(source, *ops, {}, cache(), ""));
    EXPECT_EQ(source.matrices, 0) << name;
  }
}

TEST_F(PackedCacheTest, ChangedSourceIsPackedAnew) {
  const fs::path model = copy_of_model();
  load(model);
  ASSERT_TRUE(load(model).mapped);
  const auto time = fs::last_write_time(model);
  // Another time alone.
  fs::last_write_time(model, time + std::chrono::nanoseconds(1000));
  EXPECT_FALSE(load(model).mapped);
  EXPECT_TRUE(load(model).mapped);
  EXPECT_EQ(files().size(), 1u);
  // Another size.
  {
    std::ofstream(model, std::ios::binary | std::ios::app) << "x";
  }
  fs::last_write_time(model, time + std::chrono::nanoseconds(1000));
  EXPECT_FALSE(load(model).mapped);
  EXPECT_TRUE(load(model).mapped);
  // Another file of the same size and time: only the inode tells.
  const auto now = fs::last_write_time(model);
  fs::rename(model, dir_ / "old.gguf");
  fs::copy_file(dir_ / "old.gguf", model);
  fs::last_write_time(model, now);
  EXPECT_FALSE(load(model).mapped);
  EXPECT_EQ(files().size(), 1u);
}

// Content that changes behind an unchanged size, time and inode is found by the samples.
TEST_F(PackedCacheTest, ChangedContentIsPackedAnew) {
  const fs::path model = copy_of_model();
  const Loaded before = load(model);
  ASSERT_TRUE(load(model).mapped);
  struct stat info = {};
  ASSERT_EQ(stat(model.c_str(), &info), 0);
  size_t offset = 0, bytes = 0;
  {
    const auto map = MappedFile::open(model).value();
    const std::string text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
    const auto source = open_weights(model).value();
    const TensorInfo& tensor = *source->find("blk.0.ffn_up.weight");
    offset = text.find(
        std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()));
    bytes = tensor.bytes.size();
    ASSERT_NE(offset, std::string::npos);
  }
  const int fd = open(model.c_str(), O_RDWR | O_CLOEXEC);
  const std::string zeros(bytes, '\0');
  ASSERT_EQ(pwrite(fd, zeros.data(), bytes, static_cast<off_t>(offset)),
            static_cast<ssize_t>(bytes));
  const timespec times[2] = {info.st_atim, info.st_mtim};
  ASSERT_EQ(futimens(fd, times), 0);
  close(fd);
  const Loaded after = load(model);
  EXPECT_FALSE(after.mapped);
  EXPECT_NE(after.logits, before.logits);
  EXPECT_EQ(load(model).logits, after.logits);
}

TEST_F(PackedCacheTest, DamagedFilesAreMadeAnew) {
  const fs::path model = copy_of_model();
  const Loaded good = load(model);
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  const auto size = static_cast<size_t>(fs::file_size(file));
  const auto expect_repair = [&](const std::string& what) {
    EXPECT_FALSE(load(model).mapped) << what;
    const Loaded repaired = load(model);
    EXPECT_TRUE(repaired.mapped) << what;
    EXPECT_EQ(repaired.logits, good.logits) << what;
  };
  for (const size_t at : {size_t{9}, size_t{60}, size / 2}) {
    std::fstream damaged(file, std::ios::binary | std::ios::in | std::ios::out);
    damaged.seekg(static_cast<std::streamoff>(at));
    const int byte = damaged.get();
    damaged.seekp(static_cast<std::streamoff>(at));
    damaged.put(static_cast<char>(byte ^ 4));
    damaged.close();
    expect_repair("byte " + std::to_string(at));
  }
  for (const size_t n : {size_t{0}, size - 1}) {
    fs::resize_file(file, n);
    expect_repair("cut to " + std::to_string(n));
  }
}

// A file whose head and checksums are right and whose weights are not what the model needs.
TEST_F(PackedCacheTest, WrongPartsAreMadeAnew) {
  const fs::path model = copy_of_model();
  const Loaded good = load(model);
  const fs::path path = files()[0];
  for (const int wrong : {0, 1, 2}) {
    const auto file = PackedFile::open(path).value();
    std::vector<PackedPart> parts(file.parts().begin(), file.parts().end());
    const std::string text = "none";
    if (wrong == 0) parts.pop_back();
    if (wrong == 1) parts[3].description = text;
    if (wrong == 2) std::swap(parts[0].name, parts[2].name);
    ASSERT_TRUE(write_packed_file(path, file.origin(), parts));
    const Loaded again = load(model);
    EXPECT_FALSE(again.mapped) << wrong;
    EXPECT_EQ(again.logits, good.logits) << wrong;
    EXPECT_TRUE(load(model).mapped) << wrong;
  }
}

TEST_F(PackedCacheTest, LoadsWithoutAFolderToWriteTo) {
  const fs::path model = copy_of_model();
  const Loaded good = load(model, "", false);
  write_bytes(dir_ / "file", "x");
  folder_ = dir_ / "file" / "cache";
  for (int i = 0; i < 2; ++i) {
    const Loaded loaded = load(model);
    EXPECT_FALSE(loaded.mapped);
    EXPECT_EQ(loaded.logits, good.logits);
  }
}

TEST_F(PackedCacheTest, RemovesWhatNobodyCanUse) {
  const fs::path a = copy_of_model("a.gguf"), b = copy_of_model("b.gguf");
  load(a);
  load(b);
  EXPECT_EQ(files().size(), 2u);
  write_bytes(folder_ / "notes.packed", "not ours");
  fs::remove(a);
  fs::last_write_time(b, fs::last_write_time(b) + std::chrono::seconds(5));
  load(b);
  EXPECT_EQ(files().size(), 2u);  // b's and the notes
  EXPECT_TRUE(fs::exists(folder_ / "notes.packed"));
  EXPECT_TRUE(load(b).mapped);
}

TEST(PackedCacheFolder, FromFlagAndEnvironment) {
  const auto folder = [](const char* wanted) {
    return packed_cache_folder(wanted).value().string();
  };
  unsetenv("PENSTOCK_PACKED_CACHE");
  EXPECT_EQ(folder(""), "");
  EXPECT_EQ(folder("off"), "");
  EXPECT_EQ(folder("/x/y"), "/x/y");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(folder("on"), "/caches/penstock");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(folder("on"), "/home/me/.cache/penstock");
  setenv("PENSTOCK_PACKED_CACHE", "on", 1);
  EXPECT_EQ(folder(""), "/home/me/.cache/penstock");
  EXPECT_EQ(folder("off"), "");
  unsetenv("HOME");
  EXPECT_EQ(packed_cache_folder("on").error().code, ErrorCode::kInvalidArgument);
  unsetenv("PENSTOCK_PACKED_CACHE");
}

}  // namespace
}  // namespace penstock
