#include "engine/files/session_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <istream>
#include <memory>
#include <ostream>

#include "base/checksum.h"
#include "base/file_error.h"
#include "base/regular_file.h"
#include "engine/store/block_image.h"

namespace penstock {
namespace {

constexpr uint64_t kSessionMagic = 0x32534E4553534E50ull;  // "PNSSENS2"
enum HeadWord {
  kMagicWord,
  kFingerprint,
  kRootLow,
  kRootHigh,
  kTokens,
  kBlocks,
  kChecksum,
  kHeadWords
};
using Head = std::array<uint64_t, kHeadWords>;

uint64_t head_checksum(const Head& head, std::span<const TokenId> tokens) {
  const std::span<const uint64_t> words(head.data(), kChecksum);
  const uint64_t sums[] = {checksum64(std::as_bytes(words)), checksum64(std::as_bytes(tokens))};
  return checksum64(std::as_bytes(std::span(sums)));
}

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool get(std::istream& in, T& value) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&value), sizeof value));
}

// Calls `write` with a temporary file beside `path`, then renames that to `path`, so that a failure
// leaves an older file as it was. Errors: kIo, kResourceExhausted (the disk is full).
Status write_whole_file(const std::filesystem::path& path,
                        const std::function<void(std::ostream&)>& write) {
  std::filesystem::path temporary = path;
  temporary += ".part";
  std::error_code error;
  const auto fresh = create_fresh_file(temporary);
  if (!fresh)
    return errorf(fresh.error().code, "{}: cannot write the session: {}", path.string(),
                  fresh.error().message);
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) write(out);
  out.close();
  if (!out) {
    const int code = errno != 0 ? errno : EIO;
    std::filesystem::remove(temporary, error);
    return errorf(file_error(code), "{}: cannot write the session: {}", path.string(),
                  std::strerror(code));
  }
  std::filesystem::rename(temporary, path, error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  return {};
}

BlockImages images_of(uint64_t fingerprint, const Scheduler& scheduler, const StepModel& model) {
  std::vector<int64_t> block_bytes;
  for (int g = 0; g < scheduler.n_groups(); ++g) block_bytes.push_back(model.block_bytes(g));
  return {{fingerprint, 0}, scheduler.block_size(), block_bytes};
}

std::span<const TokenId> block_of(std::span<const TokenId> tokens, size_t i, int block_size) {
  return tokens.subspan(i * static_cast<size_t>(block_size), static_cast<size_t>(block_size));
}

std::vector<BlockHash> hashes_of(BlockHash parent, std::span<const TokenId> tokens,
                                 int block_size) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i + block_size <= tokens.size(); i += block_size) {
    parent = chain_hash(parent, tokens.subspan(i, block_size));
    hashes.push_back(parent);
  }
  return hashes;
}

template <class F>  // calls f(group, block index) for every published block of the session
void for_each_block(const Scheduler& scheduler, std::span<const BlockHash> hashes, F&& f) {
  size_t found = 0;
  while (found < hashes.size() && scheduler.allocator(0).contains(hashes[found])) ++found;
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    for (size_t i = 0; i < found; ++i) {
      if (scheduler.allocator(g).contains(hashes[i])) f(g, i);
    }
  }
}

struct OpenFile {
  explicit OpenFile(FileDescriptor opened) : in(std::move(opened)) {}
  FileStream in;
  Head head{};
  std::vector<TokenId> tokens;
};

Result<std::unique_ptr<OpenFile>> open_session(const std::filesystem::path& path,
                                               uint64_t fingerprint, int vocab_size) {
  const auto damaged = [&](const char* what) {
    return errorf(ErrorCode::kCorruptFile, "{}: not a session that was saved whole: {}",
                  path.string(), what);
  };
  ASSIGN_OR_RETURN(FileDescriptor opened, open_regular_file(path));
  auto owned = std::make_unique<OpenFile>(std::move(opened));
  OpenFile& file = *owned;
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || !get(file.in, file.head) || file.head[kMagicWord] != kSessionMagic)
    return damaged("no session's head");
  if (file.head[kTokens] > (size - sizeof(Head)) / sizeof(TokenId)) return damaged("it is cut off");
  file.tokens.resize(file.head[kTokens]);
  file.in.read(reinterpret_cast<char*>(file.tokens.data()),
               static_cast<std::streamsize>(file.tokens.size() * sizeof(TokenId)));
  if (!file.in) return damaged("it is cut off");
  if (file.head[kChecksum] != head_checksum(file.head, file.tokens))
    return damaged("checksum of the tokens");
  if (file.head[kFingerprint] != fingerprint) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: the session is of another model or configuration", path.string());
  }
  for (const TokenId token : file.tokens) {
    if (token < 0 || token >= vocab_size) return damaged("a token is not in the vocabulary");
  }
  return owned;
}

// Head of an entry, in front of the block's image: its cache group, and its place in the chain of blocks.
struct Place {
  uint32_t group, index;
};

// Calls f(key, index, image) for every block. Returns false if one is truncated or damaged.
template <class F>
bool read_blocks(OpenFile& file, const BlockImages& images, int block_size, F&& f) {
  const std::vector<BlockHash> hashes =
      hashes_of({file.head[kRootLow], file.head[kRootHigh]}, file.tokens, block_size);
  BlockImage image;
  for (uint64_t i = 0; i < file.head[kBlocks]; ++i) {
    Place place{};
    if (!get(file.in, place) || place.index >= hashes.size() ||
        place.group >= static_cast<uint32_t>(images.n_groups()))
      return false;
    const BlockKey key{static_cast<int>(place.group), hashes[place.index]};
    image.resize(static_cast<size_t>(images.bytes(key.group)));
    file.in.read(reinterpret_cast<char*>(image.data()), std::ssize(image));
    if (!file.in || !images.holds(image, key, block_of(file.tokens, place.index, block_size)))
      return false;
    f(key, place.index, image);
  }
  return file.in.peek() == std::istream::traits_type::eof();
}

}  // namespace

Result<int> save_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                              std::span<const TokenId> tokens, std::span<const std::string> salts,
                              Scheduler& scheduler, const StepModel& model) {
  const int block_size = scheduler.block_size();
  BlockHash root;
  std::vector<BlockHash> hashes;
  int n_saved = -1;
  for (const std::string& salt : salts) {
    const BlockHash other_root = root_hash(salt);
    std::vector<BlockHash> others = hashes_of(other_root, tokens, block_size);
    int n_known = 0;
    for_each_block(scheduler, others,
                   [&](int group, size_t) { n_known += group == 0 ? block_size : 0; });
    if (n_known > n_saved) root = other_root, hashes = std::move(others), n_saved = n_known;
  }
  Head head = {kSessionMagic, fingerprint, root.low, root.high, tokens.size()};
  for_each_block(scheduler, hashes, [&](int, size_t) { ++head[kBlocks]; });
  head[kChecksum] = head_checksum(head, tokens);
  const BlockImages images = images_of(fingerprint, scheduler, model);
  RETURN_IF_ERROR(write_whole_file(path, [&](std::ostream& out) {
    put(out, head);
    out.write(reinterpret_cast<const char*>(tokens.data()),
              static_cast<std::streamsize>(tokens.size_bytes()));
    for_each_block(scheduler, hashes, [&](int group, size_t i) {
      const std::span<const TokenId> part = block_of(tokens, i, block_size);
      BlockImage image = images.make({group, hashes[i]}, part);
      const std::optional<BlockId> block = scheduler.allocator(group).acquire(hashes[i], part);
      if (!block) return;
      model.read_block(group, *block, images.content(group, image));
      scheduler.allocator(group).release(*block);
      images.seal(image);
      put(out, Place{static_cast<uint32_t>(group), static_cast<uint32_t>(i)});
      out.write(reinterpret_cast<const char*>(image.data()), std::ssize(image));
    });
  }));
  return n_saved;
}

Result<SessionTokens> load_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                                        int vocab_size, Scheduler& scheduler, StepModel& model) {
  ASSIGN_OR_RETURN(const auto opened, open_session(path, fingerprint, vocab_size));
  OpenFile& file = *opened;
  const int block_size = scheduler.block_size();
  const BlockImages images = images_of(fingerprint, scheduler, model);
  const auto first_block = file.in.tellg();
  if (!read_blocks(file, images, block_size, [](const BlockKey&, size_t, const BlockImage&) {})) {
    return errorf(ErrorCode::kCorruptFile, "{}: a block of the session is cut off or damaged",
                  path.string());
  }
  file.in.clear();
  file.in.seekg(first_block);
  // All blocks are held until the last is restored: if there is no room for all, the first ones
  // stay.
  std::vector<std::pair<int, BlockId>> held;
  SessionTokens session;
  const auto restore = [&](const BlockKey& key, size_t i, BlockImage& image) {
    BlockAllocator& allocator = scheduler.allocator(key.group);
    const std::span<const TokenId> part = block_of(file.tokens, i, block_size);
    std::optional<BlockId> block = allocator.acquire(key.hash, part);
    if (!block && (block = allocator.allocate())) {
      model.write_block(key.group, *block, images.content(key.group, image));
      allocator.publish(*block, key.hash, part);
    }
    if (!block) return;
    held.emplace_back(key.group, *block);
    session.n_restored += key.group == 0 ? block_size : 0;
  };
  read_blocks(file, images, block_size, restore);
  for (size_t i = held.size(); i-- > 0;) scheduler.allocator(held[i].first).release(held[i].second);
  session.tokens = std::move(file.tokens);
  return session;
}

}  // namespace penstock
