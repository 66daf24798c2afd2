#include "engine/compute/fingerprint.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "draft/block_allocator.h"
#include "engine/compute/cache_types.h"
#include "formats/contents.h"
#include "penstock/version.h"

namespace penstock {
namespace {

// Version of a cache block's bytes. Increment it when they change.
constexpr int kBlockVersion = 2;

// Finds the build ID that the linker has noted in the program or library whose code this is.
struct BuildId {
  std::string id;

  static int visit(dl_phdr_info* info, size_t, void* to) {
    const auto self = reinterpret_cast<ElfW(Addr)>(&visit);
    bool is_own = false;
    for (const auto& part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
      const ElfW(Addr) begin = info->dlpi_addr + part.p_vaddr;
      is_own |= part.p_type == PT_LOAD && self >= begin && self < begin + part.p_memsz;
    }
    if (!is_own) return 0;
    for (const auto& part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
      if (part.p_type == PT_NOTE)
        static_cast<BuildId*>(to)->find(
            {reinterpret_cast<const char*>(info->dlpi_addr) + part.p_vaddr, part.p_memsz});
    }
    return 1;
  }

 private:
  void find(std::string_view notes) {
    const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
    while (notes.size() >= sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) head;
      std::memcpy(&head, notes.data(), sizeof head);
      notes.remove_prefix(sizeof head);
      const size_t name = padded(head.n_namesz), bytes = name + padded(head.n_descsz);
      if (bytes > notes.size()) return;
      if (head.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view("GNU", 4)))
        id = notes.substr(name, head.n_descsz);
      notes.remove_prefix(bytes);
    }
  }
};

std::string build_id() {
  BuildId build;
  dl_iterate_phdr(&BuildId::visit, &build);
  return build.id;
}

}  // namespace

uint64_t fingerprint_of(const WeightSource& source, const EngineConfig& config,
                        const char* backend) {
  std::string shape;
  for (const auto& [key, value] : source.config().items()) {
    if (!key.starts_with("tokenizer."))
      shape += key + value.dump();  // the tokenizer is large and does not affect K and V
  }
  BlockHash hash =
      root_hash(fmt::format("{} {} {} {} {} {}", kBlockVersion, backend, config.kv_cache_dtype,
                            config.block_size, config.batch_invariant, shape));
  // Two numbers, so that this differs from every chain of single numbers below.
  if (state_dtype(config.mamba_ssm_cache_dtype).value_or(StateDType::kF32) == StateDType::kBF16)
    hash = chain_hash(hash, std::array{TokenId{0}, TokenId{2}});
  if (!config.quantize.empty()) {
    const std::vector<TokenId> name(config.quantize.begin(), config.quantize.end());
    hash = chain_hash(chain_hash(hash, std::array{TokenId{0}, TokenId{3}}), name);
  }
  // A block's content is the concatenation of all ranks' parts.
  if (config.tensor_parallel_size > 1)
    hash = chain_hash(hash, std::array{TokenId{config.tensor_parallel_size}});
  if (config.tensor_parallel_size > 1 && config.rank_wire_dtype != "f32")
    hash = chain_hash(hash, std::array{TokenId{1}});
  if (config.pipeline_parallel_size > 1)
    hash = chain_hash(hash, std::array{TokenId{-config.pipeline_parallel_size}});
  constexpr size_t kEnd = 64;
  for (const TensorInfo& tensor : source.tensors()) {  // read ahead in the order of the file
    const size_t n = std::min(tensor.bytes.size(), kEnd);
    source.read_ahead({tensor.bytes.first(n)});
    source.read_ahead({tensor.bytes.last(n)});
  }
  for (const TensorInfo& tensor : source.tensors()) {
    const size_t n = std::min(tensor.bytes.size(), kEnd);
    const auto text = [&](size_t from) {
      return std::string_view(reinterpret_cast<const char*>(tensor.bytes.data()) + from, n);
    };
    for (const std::string_view part :
         {std::string_view(tensor.name), text(0), text(tensor.bytes.size() - n)}) {
      const BlockHash of_part = root_hash(part);
      const TokenId words[4] = {
          static_cast<TokenId>(of_part.low), static_cast<TokenId>(of_part.low >> 32),
          static_cast<TokenId>(of_part.high), static_cast<TokenId>(of_part.high >> 32)};
      hash = chain_hash(hash, words);
    }
  }
  return hash.low ^ hash.high;
}

uint64_t with_host_experts(uint64_t fingerprint, const std::string& layers) {
  if (layers.empty()) return fingerprint;
  const BlockHash hash =
      root_hash(fmt::format("{:016x} experts on the host: {}", fingerprint, layers));
  return hash.low ^ hash.high;
}

BlockHash store_identity(const WeightSource& source, uint64_t fingerprint) {
  std::string text = fmt::format("{} {:016x}\n", kVersion, fingerprint);
  for (const SourceFile& file : source.files()) {
    const FileStamp& stamp = file.stamp;
    text += fmt::format("{} {} {}\n", stamp.size, stamp.inode, stamp.modified_ns);
  }
  return root_hash(text + build_id());
}

BlockHash shared_identity(const WeightSource& source, uint64_t fingerprint) {
  const std::string text = fmt::format("{} {:016x} by content\n", kVersion, fingerprint);
  return root_hash(text + contents_of(source) + build_id());
}

}  // namespace penstock
