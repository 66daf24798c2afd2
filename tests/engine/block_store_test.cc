// The files of cached blocks: what comes back is what was written or nothing, whatever happened to
// the files, however many share them, and however small the disk is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <map>
#include <numeric>

#include "base/regular_file.h"
#include "engine/hung_store.h"
#include "engine/store/block_files.h"
#include "engine/store/block_folder.h"
#include "engine/store/kv_store.h"
#include "formats/temp_dir.h"
#include "kernels/philox.h"
#include "ops/cache_spec.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kBlockSize = 4;
constexpr int64_t kMany = int64_t{1} << 30;

BlockImages images_of(uint64_t fingerprint = 1) {
  const int64_t bytes[] = {100, 37, 5000};
  return {{fingerprint, 7}, kBlockSize, bytes};
}

BlockFolder folder_at(const fs::path& path, int64_t max_bytes = kMany, uint64_t fingerprint = 1) {
  return BlockFolder::open(path, max_bytes, images_of(fingerprint)).value();
}

template <class Store>
std::shared_ptr<Store> borrowed(Store& store) {
  return {std::shared_ptr<void>(), &store};
}

// Block number `n` of a chain that all tests share, with content that says which it is.
struct Block {
  explicit Block(int n, int group = 0) : key{group, root_hash("chain")} {
    tokens.resize(kBlockSize);
    for (int i = 0; i <= n; ++i) {
      std::iota(tokens.begin(), tokens.end(), 10 * i);
      key.hash = chain_hash(key.hash, tokens);
    }
  }
  BlockImage image(const BlockImages& images) const {
    BlockImage image = images.make(key, tokens);
    uint64_t i = 0;
    for (std::byte& byte : images.content(key.group, image))
      byte = static_cast<std::byte>(mix_seed(key.hash.low, i++));
    images.seal(image);
    return image;
  }
  BlockKey key;
  std::vector<TokenId> tokens;
};

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

TEST(BlockFolder, GivesBackWhatWasWritten) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir / "store");
  for (int group = 0; group < 3; ++group) {
    const Block block(group, group);
    BlockImage read;
    EXPECT_FALSE(folder.contains(block.key));
    EXPECT_EQ(folder.read(block.key, block.tokens, read).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
    EXPECT_TRUE(folder.contains(block.key));
    ASSERT_TRUE(folder.read(block.key, block.tokens, read));
    EXPECT_EQ(read, block.image(folder.images()));
  }
  struct stat info{};
  ASSERT_EQ(stat(files_below(dir.path())[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "prompts are nobody else's";
}

TEST(BlockFolder, ModelsShareAFolderAndNoBlocks) {
  const TempDir dir;
  BlockFolder one = folder_at(dir.path(), kMany, 1), other = folder_at(dir.path(), kMany, 2);
  const Block block(0);
  ASSERT_TRUE(one.write(block.key, block.image(one.images())));
  BlockImage read;
  EXPECT_FALSE(other.contains(block.key));
  // even where the file of another model lies under its name
  ASSERT_TRUE(other.write(block.key, block.image(other.images())));
  const auto files = files_below(dir.path());
  ASSERT_EQ(files.size(), 2u);
  fs::copy_file(files[0], files[1], fs::copy_options::overwrite_existing);
  EXPECT_NE(one.read(block.key, block.tokens, read).has_value(),
            other.read(block.key, block.tokens, read).has_value());
}

// The hash alone does not decide: another block's tokens under the same hash are a miss.
TEST(BlockFolder, ACollisionIsAMiss) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  const Block block(0);
  ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
  std::vector<TokenId> others = block.tokens;
  ++others.back();
  BlockImage read;
  EXPECT_EQ(folder.read(block.key, others, read).error().code, ErrorCode::kCorruptFile);
}

TEST(BlockFolder, EveryDamageIsFoundAndRemoved) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  const bool ok = rc::check([&](uint64_t seed) {
    const int group = static_cast<int>(seed % 3);
    const Block block(0, group);
    const BlockImage whole = block.image(folder.images());
    BlockImage bytes = whole;
    const auto size = static_cast<int>(whole.size());
    switch (*rc::gen::inRange(0, 5)) {
      case 0:  // flipped bits
        for (int i = *rc::gen::inRange(1, 4); i > 0; --i)
          bytes[*rc::gen::inRange(0, size)] ^= std::byte(1 << *rc::gen::inRange(0, 8));
        break;
      case 1: bytes.resize(*rc::gen::inRange(0, size)); break;  // cut off
      case 2: bytes.resize(size + *rc::gen::inRange(1, 100)); break;
      case 3: {  // a torn write: pages that never came
        const int from = *rc::gen::inRange(0, size);
        std::fill(bytes.begin() + from, bytes.end(), std::byte{0});
        break;
      }
      default:  // another block's bytes
        bytes = Block(1, group).image(folder.images());
    }
    RC_PRE(bytes != whole);
    RC_ASSERT(folder.write(block.key, whole).has_value());
    const fs::path file = files_below(dir.path()).at(0);
    write_bytes(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    BlockImage read;
    RC_ASSERT(folder.read(block.key, block.tokens, read).error().code == ErrorCode::kCorruptFile);
    RC_ASSERT(!folder.contains(block.key));
  });
  EXPECT_TRUE(ok);
}

TEST(BlockFolder, WhatIsNoFileIsAMiss) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  const Block block(0);
  ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
  const fs::path file = files_below(dir.path()).at(0);
  BlockImage read;
  const auto put = [&](const std::string& what) {
    fs::remove_all(file);
    if (what == "fifo") return mkfifo(file.c_str(), 0600) == 0;
    if (what == "directory") return fs::create_directory(file);
    return symlink(what == "device" ? "/dev/zero" : file.c_str(), file.c_str()) == 0;
  };
  for (const std::string what : {"fifo", "directory", "device", "loop"}) {
    ASSERT_TRUE(put(what)) << what;
    EXPECT_EQ(folder.read(block.key, block.tokens, read).error().code, ErrorCode::kIo) << what;
    ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
    EXPECT_TRUE(folder.read(block.key, block.tokens, read)) << what << ": its place is free again";
  }
}

TEST(BlockFolder, FoldersThatSomebodyRemovesAreMadeAgain) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  const Block block(0);
  ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
  const fs::path part = files_below(dir.path()).at(0).parent_path();
  BlockImage read;
  for (const fs::path& gone : {part, part.parent_path(), part.parent_path().parent_path()}) {
    fs::remove_all(gone);
    EXPECT_EQ(folder.read(block.key, block.tokens, read).error().code, ErrorCode::kNotFound);
    const Status written = folder.write(block.key, block.image(folder.images()));
    ASSERT_TRUE(written) << gone << ": " << written.error().message;
    EXPECT_TRUE(folder.read(block.key, block.tokens, read)) << gone;
  }
}

TEST(BlockFolder, TheLeastRecentlyUsedGoFirst) {
  const TempDir dir;
  constexpr int64_t kPage = 4096, kMost = 100 * kPage;
  BlockFolder folder = folder_at(dir.path(), kMost);
  std::vector<Block> blocks;
  for (int i = 0; i < 300; ++i) blocks.emplace_back(i);
  // a file of somebody else is not touched
  fs::create_directories(dir / "penstock-kv/00112233445566778899aabbccddeeff/00");
  const fs::path foreign = dir / "penstock-kv/00112233445566778899aabbccddeeff/00/notes.txt";
  write_bytes(foreign, "mine");
  BlockImage read;
  int64_t most = 0;
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(folder.write(blocks[i].key, blocks[i].image(folder.images())));
    // block 0 is in use all the time; the others age
    ASSERT_TRUE(folder.read(blocks[0].key, blocks[0].tokens, read)) << i;
    for (const fs::path& file : files_below(dir.path()))
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::seconds(i == 0 ? 0 : 2));
    ASSERT_TRUE(folder.read(blocks[0].key, blocks[0].tokens, read)) << i;
    if (i % 10 == 0) most = std::max(most, std::ssize(files_below(dir.path())) * kPage);
  }
  EXPECT_LE(most, kMost + kPage);
  EXPECT_GE(std::ssize(files_below(dir.path())), 85) << "what fits is kept";
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(folder.contains(blocks[299].key));
  EXPECT_TRUE(folder.contains(blocks[260].key));
  EXPECT_FALSE(folder.contains(blocks[1].key));
}

TEST(BlockFolder, LeftoversOfAKilledWriterAreRemoved) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  ASSERT_TRUE(folder.write(Block(0).key, Block(0).image(folder.images())));
  const fs::path old = files_below(dir.path()).at(0).parent_path() / "1.2.part",
                 young = old.parent_path() / "1.3.part";
  write_bytes(old, "half"), write_bytes(young, "half");
  fs::last_write_time(old, fs::last_write_time(old) - std::chrono::hours(1));
  prune_block_files(dir / kBlockFolder, kMany, kMany);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young)) << "its writer may be at it";
}

// Processes in containers of their own have equal numbers.
TEST(BlockFolder, UnfinishedFilesOfAnotherProcessOfThisNumberDoNotMatter) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  ASSERT_TRUE(folder.write(Block(0).key, Block(0).image(folder.images())));
  const fs::path file = files_below(dir.path()).at(0);
  fs::remove(file);
  for (int i = 0; i < 5000; ++i)
    write_bytes(file.parent_path() / fmt::format("{}.{}.part", getpid(), i), "");
  ASSERT_TRUE(folder.write(Block(0).key, Block(0).image(folder.images())));
  EXPECT_TRUE(folder.contains(Block(0).key));
}

TEST(BlockFolder, ASizeOfFewBlocksIsAnError) {
  const TempDir dir;
  constexpr int64_t kLeast = 16 * 8192;  // the largest block has 5000 bytes of content
  EXPECT_TRUE(BlockFolder::open(dir.path(), kLeast, images_of()));
  const auto folder = BlockFolder::open(dir.path(), kLeast - 1, images_of());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  for (const char* part : {"131072", "131071"})
    EXPECT_NE(folder.error().message.find(part), std::string::npos) << folder.error().message;
}

TEST(BlockFolder, AFolderThatCannotBeMadeIsAnError) {
  const auto folder = BlockFolder::open("/proc/none", kMany, images_of());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("/proc/none"), std::string::npos);
}

// A child writes and is killed at any moment: what is there is whole.
TEST(BlockFolder, AKilledWriterLeavesWholeBlocksOnly) {
  const TempDir dir;
  std::vector<Block> blocks;
  for (int i = 0; i < 200; ++i) blocks.emplace_back(i, 2);
  const auto count = [&](auto&& f) { return std::ranges::count_if(blocks, f); };
  int64_t n_read = 0, last = -1;
  for (int round = 0; round < 30 && last < std::ssize(blocks); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      BlockFolder folder = folder_at(dir.path());
      for (const Block& block : blocks) (void)folder.write(block.key, block.image(folder.images()));
      _exit(0);
    }
    usleep(static_cast<useconds_t>(500 + 1000 * (round % 7)) << (round / 7));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    BlockFolder folder = folder_at(dir.path());
    last = count([&](const Block& block) {
      BlockImage read;
      if (!folder.contains(block.key)) return false;
      EXPECT_TRUE(folder.read(block.key, block.tokens, read)) << round;
      return read == block.image(folder.images());
    });
    n_read += last;
  }
  EXPECT_GT(n_read, 0);
}

TEST(BlockFiles, AreListedCheckedAndPruned) {
  const TempDir dir;
  EXPECT_EQ(list_store(dir.path()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(check_store(dir / "none", {}).error().code, ErrorCode::kNotFound);
  BlockFolder one = folder_at(dir.path(), kMany, 1), other = folder_at(dir.path(), kMany, 2);
  for (int i = 0; i < 6; ++i) {
    const Block block(i, i % 3);
    ASSERT_TRUE(one.write(block.key, block.image(one.images())));
    if (i < 2) {
      ASSERT_TRUE(other.write(block.key, block.image(other.images())));
    }
  }
  const auto models = list_store(dir.path()).value();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models.begin()->second.n_blocks + models.rbegin()->second.n_blocks, 8);
  EXPECT_EQ(models
                .at("0000000000000007"
                    "0000000000000001")
                .n_blocks,
            6);
  EXPECT_EQ(models
                .at("0000000000000007"
                    "0000000000000001")
                .bytes,
            4 * 4096 + 2 * 8192);

  std::vector<std::string> faults;
  const auto check = [&] {
    faults.clear();
    const auto note = [&](const BlockFault& fault) {
      faults.push_back(fault.what);
      EXPECT_TRUE(fault.was_read) << fault.what;
    };
    const StoreCheck check = check_store(dir.path(), note).value();
    EXPECT_EQ(check.n_blocks, 8);
    EXPECT_EQ(check.n_damaged, std::ssize(faults));
    return faults.size();
  };
  EXPECT_EQ(check(), 0u);
  for (const fs::path& file : files_below(dir.path())) {
    const std::string whole = read_regular_file(file, 1 << 20).value();
    const auto damage = [&](const std::string& bytes, const char* fault) {
      write_bytes(file, bytes);
      ASSERT_EQ(check(), 1u) << fault;
      EXPECT_NE(faults[0].find(fault), std::string::npos) << faults[0];
    };
    std::string bytes = whole;
    bytes[whole.size() - 9] ^= 1;
    damage(bytes, "damaged");
    damage(whole.substr(0, whole.size() - 1), "another size");
    damage(whole.substr(0, 20), "cut off");
    damage("", "cut off");
    for (const auto& [at, fault] : {std::pair(0, "no block"),
                                    {8, "another model"},
                                    {24, "its name"},
                                    {40, "its name"},
                                    {48, "another size"},
                                    {56, "another size"}}) {
      bytes = whole;
      bytes[static_cast<size_t>(at)] ^= 1;
      damage(bytes, fault);
    }
    write_bytes(file, whole);
  }
  EXPECT_EQ(check(), 0u);
  EXPECT_LE(prune_block_files(dir / kBlockFolder, 20000, 20000), 20000);
  EXPECT_GT(files_below(dir.path()).size(), 0u);
  EXPECT_EQ(prune_block_files(dir / kBlockFolder, 0, 0), 0);
  EXPECT_EQ(files_below(dir.path()).size(), 0u);
}

// A block for which there is no descriptor is not called damaged: nobody may remove it for that.
TEST(BlockFiles, ThatCannotBeReadAreNotDamaged) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  for (const Block& block : {Block(1), Block(2)})
    ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(STDERR_FILENO);
  close(next);
  constexpr int kFolders = 3;  // that are open while a block is read
  rlimit few = limit;
  few.rlim_cur = static_cast<rlim_t>(next + kFolders);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<BlockFault> faults;
  const auto check =
      check_store(dir.path(), [&](const BlockFault& fault) { faults.push_back(fault); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->n_blocks, 0);
  EXPECT_EQ(check->n_damaged, 0);
  EXPECT_EQ(check->n_unread, 2);
  ASSERT_EQ(faults.size(), 2u);
  for (const BlockFault& fault : faults) EXPECT_FALSE(fault.was_read) << fault.what;
}

TEST(BlockFiles, WhatLiesInTheFutureWasUsedNow) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path(), kMany, 1);
  const Block block(1, 0);
  ASSERT_TRUE(folder.write(block.key, block.image(folder.images())));
  const timespec times[2] = {{13'600'000'000, 0}, {13'600'000'000, 0}};  // in 2400
  const fs::path file = files_below(dir.path()).at(0);
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_EQ(list_store(dir.path()).value().begin()->second.oldest_ns, 0);
}

TEST(BlockWriter, WritesBehindAndFlushesAtItsEnd) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  {
    BlockWriter writer(borrowed(folder), kMany);
    for (int i = 0; i < 50; ++i) {
      BlockImage image = Block(i).image(folder.images());
      std::fill(image.end() - 8, image.end(), std::byte{0});  // it is sealed by the writer
      writer.put(Block(i).key, std::move(image));
    }
    ASSERT_TRUE(writer.flush(std::chrono::seconds(60)));
    EXPECT_EQ(writer.counts().blocks, 50);
    writer.put(Block(50).key, Block(50).image(folder.images()));
  }
  BlockImage read;
  for (int i = 0; i <= 50; ++i) EXPECT_TRUE(folder.read(Block(i).key, Block(i).tokens, read)) << i;
}

// Files may have 2,000 bytes: a disk that is full.
TEST(BlockWriter, AFullDiskDropsBlocksAndBlocksNobody) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{2000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  BlockWriter writer(borrowed(folder), kMany);
  for (int i = 0; i < 20; ++i) writer.put(Block(i, 2).key, Block(i, 2).image(folder.images()));
  EXPECT_TRUE(writer.flush(std::chrono::seconds(60)));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(writer.counts().dropped, 20);
  EXPECT_EQ(files_below(dir.path()).size(), 0u);
}

TEST(BlockWriter, ItsQueueIsBounded) {
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  const BlockImage image = Block(0, 2).image(folder.images());
  BlockWriter writer(borrowed(folder), 2 * std::ssize(image));
  for (int i = 0; i < 2000; ++i) writer.put(Block(0, 2).key, image);
  ASSERT_TRUE(writer.flush(std::chrono::seconds(60)));
  EXPECT_EQ(writer.counts().blocks + writer.counts().dropped, 2000);
  EXPECT_GT(writer.counts().dropped, 0);
}

// A store whose disk throws, and that counts the attempts.
class ThrowingStore final : public BlockStore {
 public:
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey&) const override { return true; }
  bool touch(const BlockKey&) const override { return true; }
  Status read(const BlockKey&, std::span<const TokenId>, BlockImage&) const override {
    throw fs::filesystem_error("readdir", std::make_error_code(std::errc::io_error));
  }
  Status write(const BlockKey&, const BlockImage&) override {
    if (n_written++ == 0) throw std::bad_alloc();
    throw fs::filesystem_error("readdir", std::make_error_code(std::errc::io_error));
  }
  std::atomic<int> n_written = 0;

 private:
  const BlockImages images_ = images_of();
};

TEST(BlockWriter, WhatTheStoreThrowsIsAFailedWrite) {
  for (const int first : {0, 1}) {
    ThrowingStore store;
    store.n_written = first;
    BlockWriter writer(borrowed(store), kMany);
    for (int i = 0; i < 3; ++i) writer.put(Block(i).key, Block(i).image(store.images()));
    ASSERT_TRUE(writer.flush(std::chrono::seconds(60)));
    EXPECT_EQ(store.n_written, first + 1) << "it rests after a failure";
    EXPECT_EQ(writer.counts().dropped, 3);
  }
}

// The thread is at a write that does not end.
TEST(BlockWriter, ADiskThatHangsIsLeftBehind) {
  const auto gate = std::make_shared<Gate>();
  {
    BlockWriter writer(std::make_shared<HungStore>(images_of(), gate, HungStore::kWrite), 1, 20ms);
    writer.put(Block(0).key, Block(0).image(images_of()));
    gate->wait_for_call();
    EXPECT_FALSE(writer.flush(1h));
    EXPECT_TRUE(writer.hangs());
    EXPECT_FALSE(writer.has_room(1));
    writer.put(Block(1).key, Block(1).image(images_of()));
    EXPECT_EQ(writer.counts().dropped, 1);
  }
  gate->open();
}

TEST(BlockWriter, TellsWhenThereIsRoomAgain) {
  const auto gate = std::make_shared<Gate>();
  std::promise<void> room;
  BlockWriter writer(std::make_shared<HungStore>(images_of(), gate, HungStore::kWrite), 1);
  writer.on_room([&] { room.set_value(); });  // once: a second call throws
  writer.put(Block(0).key, Block(0).image(images_of()));
  EXPECT_FALSE(writer.has_room(1));
  gate->open();
  room.get_future().wait();
  EXPECT_TRUE(writer.has_room(1));
  writer.put(Block(1).key, Block(1).image(images_of()));
  EXPECT_TRUE(writer.flush(1h));
  writer.on_room({});
}

// --- Loading

struct Loads {
  // window: of the second group, in tokens; the third holds states.
  explicit Loads(int n_blocks, int window = 6) : windows{0, window, kStateWindow} {
    query.windows = windows;
    for (int i = 0; i < n_blocks; ++i) {
      const Block block(i);
      query.hashes.push_back(block.key.hash);
      query.tokens.insert(query.tokens.end(), block.tokens.begin(), block.tokens.end());
    }
    query.in_memory.assign(3, std::vector<bool>(static_cast<size_t>(n_blocks)));
  }
  void store(int group, std::span<const int> blocks) {
    for (const int i : blocks)
      EXPECT_TRUE(folder.write(Block(i, group).key, Block(i, group).image(folder.images())));
  }
  // Returns the indices of the blocks that a load brings, by group.
  std::map<int, std::vector<int>> run(BlockLoader& loader) {
    std::map<int, std::vector<int>> indices;
    const auto load = loader.begin(query);
    std::vector<LoadedBlock> blocks;
    bool done = false;
    while (!done) {
      done = loader.take(*load, 1, blocks) == BlockLoader::Taken::kLast;
      usleep(100);
    }
    for (const LoadedBlock& block : blocks) {
      indices[block.key.group].push_back(block.index);
      EXPECT_EQ(block.image, Block(block.index, block.key.group).image(folder.images()));
    }
    return indices;
  }
  const TempDir dir;
  BlockFolder folder = folder_at(dir.path());
  std::vector<int> windows;
  ChainQuery query;
};

using Indices = std::map<int, std::vector<int>>;

TEST(BlockLoader, BringsTheLongestPrefixThatAllGroupsHave) {
  Loads loads(8);
  BlockLoader loader(borrowed(loads.folder), kBlockSize, kMany);
  EXPECT_EQ(loads.run(loader), Indices{});
  loads.store(0, std::array{0, 1, 2, 3, 4, 6});
  EXPECT_EQ(loads.run(loader), Indices{}) << "no state, no prefix";
  loads.store(2, std::array{1, 3});
  EXPECT_EQ(loads.run(loader), Indices{}) << "no window, no prefix";
  loads.store(1, std::array{0, 1, 4});
  EXPECT_EQ(loads.run(loader), (Indices{{0, {0, 1}}, {1, {0, 1}}, {2, {1}}}));
  loads.store(1, std::array{2, 3});  // after 4 blocks the window of 6 tokens needs blocks 2 and 3
  EXPECT_EQ(loads.run(loader), (Indices{{0, {0, 1, 2, 3}}, {1, {2, 3}}, {2, {3}}}));
  EXPECT_EQ(loader.counts().misses, 3);
  EXPECT_EQ(loader.counts().queries, 5);
}

TEST(BlockLoader, ReadsOnlyWhatMemoryLacks) {
  Loads loads(4);
  BlockLoader loader(borrowed(loads.folder), kBlockSize, kMany);
  loads.store(0, std::array{2, 3});
  loads.store(2, std::array{3});
  loads.query.in_memory[0] = {true, true, false, false};
  loads.query.in_memory[1] = {true, true, true, true};
  loads.query.in_memory[2] = {false, true, false, false};
  loads.query.n_found = 2;
  EXPECT_EQ(loads.run(loader), (Indices{{0, {2, 3}}, {2, {3}}}));
  loads.query.n_found = 4;
  EXPECT_EQ(loads.run(loader), Indices{}) << "nothing is longer than what memory has";
}

TEST(BlockLoader, EndsAtADamagedBlock) {
  Loads loads(4, 0);
  loads.query.windows = {0};
  loads.query.in_memory.resize(1);
  loads.store(0, std::array{0, 1, 2, 3});
  BlockLoader loader(borrowed(loads.folder), kBlockSize, kMany);
  EXPECT_EQ(loads.run(loader), (Indices{{0, {0, 1, 2, 3}}}));
  ASSERT_TRUE(loads.folder.contains(Block(2).key));
  for (const fs::path& file : files_below(loads.dir.path())) {
    if (file.filename().string().starts_with(fmt::format("{:016x}", Block(2).key.hash.high)))
      write_bytes(file, "no block");
  }
  EXPECT_EQ(loads.run(loader), (Indices{{0, {0, 1}}}));
  EXPECT_EQ(loader.counts().damaged, 1);
}

TEST(BlockLoader, WhatIsSoonerComputedIsNotRead) {
  Loads loads(4, 0);
  loads.query.windows = {0};
  loads.query.in_memory.resize(1);
  loads.store(0, std::array{0, 1, 2, 3});
  BlockLoader loader(borrowed(loads.folder), kBlockSize, kMany);
  loads.query.token_seconds = 1e-12;
  EXPECT_EQ(loads.run(loader).size(), 1u) << "the first load is the disk's measure";
  EXPECT_EQ(loads.run(loader).size(), 0u);
  EXPECT_EQ(loader.counts().refused, 1);
  loads.query.token_seconds = 1;
  EXPECT_EQ(loads.run(loader).size(), 1u);
}

TEST(BlockLoader, WhatTheStoreThrowsIsAMiss) {
  Loads loads(4);
  const ThrowingStore store;
  BlockLoader loader(borrowed(store), kBlockSize, kMany);
  EXPECT_EQ(loads.run(loader), Indices{});
  EXPECT_EQ(loads.run(loader), Indices{}) << "its thread goes on";
}

TEST(BlockLoader, KeepsFewBlocksThatNobodyTakes) {
  Loads loads(200, 0);
  loads.query.windows = {0};
  loads.query.in_memory.resize(1);
  std::vector<int> all(200);
  std::iota(all.begin(), all.end(), 0);
  loads.store(0, all);
  const int64_t bytes = loads.folder.images().bytes(0);
  BlockLoader loader(borrowed(loads.folder), kBlockSize, 3 * bytes);
  const auto load = loader.begin(loads.query);
  for (int i = 0; i < 6000 && loader.counts().blocks < 3; ++i) usleep(10000);
  usleep(20000);
  EXPECT_EQ(loader.counts().blocks, 3);
  EXPECT_LT(loader.busy_seconds(*load), 60) << "waiting for take() does not count";
  loader.give_up(*load);
  EXPECT_EQ(loads.run(loader).at(0).size(), 200u) << "the next load has its place";
}

TEST(BlockLoader, EndsWithLoadsUnderWay) {
  Loads loads(50, 0);
  loads.query.windows = {0};
  loads.query.in_memory.resize(1);
  std::vector<int> all(50);
  std::iota(all.begin(), all.end(), 0);
  loads.store(0, all);
  BlockLoader loader(borrowed(loads.folder), kBlockSize, 1);
  const auto first = loader.begin(loads.query), second = loader.begin(loads.query);
  loader.give_up(*first);
}

// Of two loads the first hangs, and nobody wants it any more.
TEST(BlockLoader, ADiskThatHangsIsLeftBehind) {
  for (const int calls : {HungStore::kContains, HungStore::kRead}) {
    const auto gate = std::make_shared<Gate>();
    {
      Loads loads(4);
      BlockLoader loader(std::make_shared<HungStore>(images_of(), gate, calls), kBlockSize, kMany,
                         1ms);
      const auto first = loader.begin(loads.query);
      gate->wait_for_call();
      loader.give_up(*first);
      EXPECT_FALSE(loader.hangs()) << "nobody has waited for it";
      const auto second = loader.begin(loads.query);
      loader.give_up(*second, true);
      EXPECT_TRUE(loader.hangs());
    }
    gate->open();
  }
}

TEST(BlockLoader, ADiskThatIsBackIsAskedAgain) {
  Loads loads(4);
  const auto gate = std::make_shared<Gate>();
  BlockLoader loader(std::make_shared<HungStore>(images_of(), gate, HungStore::kRead), kBlockSize,
                     kMany);
  const auto load = loader.begin(loads.query);
  gate->wait_for_call();
  loader.give_up(*load, true);
  EXPECT_TRUE(loader.hangs());
  std::vector<LoadedBlock> none;
  EXPECT_EQ(loader.take(*load, 1, none), BlockLoader::Taken::kLast);
  gate->open();
  EXPECT_EQ(loads.run(loader), Indices{});
  EXPECT_FALSE(loader.hangs());
}

TEST(KvStore, ReadsItsArgument) {
  const auto bytes = [](const std::string& text) { return parse_kv_store(text).value().max_bytes; };
  EXPECT_EQ(parse_kv_store("/a/b").value().path, "/a/b");
  EXPECT_EQ(bytes("/a/b"), int64_t{16} << 30);
  EXPECT_EQ(parse_kv_store("a:20G").value().path, "a");
  EXPECT_EQ(bytes("a:20G"), int64_t{20} << 30);
  EXPECT_EQ(bytes("a:3MiB"), 3 << 20);
  EXPECT_EQ(bytes("a:2KB:1T"), int64_t{1} << 40);
  EXPECT_EQ(bytes("a:5000000"), 5000000);
  for (const char* wrong : {"", ":3G", "a:", "a:b", "a:-1G", "a:1", "a:3X", "a:3GG", "a:3iB",
                            "a:99999999999999999999", "a:9999999999999T"}) {
    const auto spec = parse_kv_store(wrong);
    ASSERT_FALSE(spec) << wrong;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace penstock
