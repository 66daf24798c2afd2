// Compares a tokenizer with one entry of a golden file.
#pragma once
#include <gtest/gtest.h>

#include <chrono>

#include "golden_cases.h"
#include "text/tokenizer.h"

namespace penstock::golden {

inline std::string show(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += std::to_string(id) + " ";
  return text;
}

// mode: "plain" (no special tokens added or parsed) or "special" (both).
inline void check_mode(const Tokenizer& tokenizer, const nlohmann::json& golden,
                       const std::string& mode) {
  const bool special = mode == "special";
  const nlohmann::json& want = golden[mode];
  const size_t n = golden["n"].get<size_t>(),
               n_full = want.value("first", nlohmann::json::array()).size();
  Cases cases(golden["seed"].get<uint64_t>());
  Hash ids_hash, text_hash;
  for (size_t i = 0; i < n; ++i) {
    const std::string text = cases.next(golden["invalid"].get<bool>());
    const std::vector<TokenId> ids =
        tokenizer.encode(text, {.add_special = special, .parse_special = special});
    if (i < n_full) {
      const auto expected = want["first"][i].get<std::vector<TokenId>>();
      ASSERT_EQ(ids, expected) << mode << " string " << i << ": \"" << text << "\"\ngot  "
                               << show(ids) << "\nwant " << show(expected);
    }
    ids_hash.add(std::span(ids));
    if (want.contains("decoded")) text_hash.add(tokenizer.decode(ids, true));
    if ((i + 1) % kChunk != 0) continue;
    const size_t chunk = i / kChunk;
    ASSERT_EQ(ids_hash.hex(), want["hashes"][chunk].get<std::string>())
        << mode << " ids of strings up to " << i;
    if (want.contains("decoded")) {
      ASSERT_EQ(text_hash.hex(), want["decoded"][chunk].get<std::string>())
          << mode << " texts of strings up to " << i;
    }
    ids_hash = {};
    text_hash = {};
  }
}

inline void check(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  for (const char* mode : {"plain", "special"}) {
    if (golden.contains(mode)) check_mode(tokenizer, golden, mode);
  }
}

inline Result<std::unique_ptr<Tokenizer>> open_file(const std::filesystem::path& path) {
  TokenizerFiles files;
  (path.extension() == ".json" ? files.tokenizer_json : files.tokenizer_model) = read_file(path);
  return Tokenizer::from_files(files);
}

}  // namespace penstock::golden
