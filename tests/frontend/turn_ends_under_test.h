// A small vocabulary with the marks of a chat template as tokens, for tests of what ends a reply.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "frontend/chat/turn_ends.h"
#include "nlohmann/json.hpp"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace penstock {

// special: marks that are special tokens. files: what else the directory has (its tokenizer.json is
// made here).
inline std::unique_ptr<Tokenizer> tokenizer_with(const std::string& chat_template,
                                                 const std::set<std::string>& special,
                                                 const std::set<std::string>& other = {},
                                                 TokenizerFiles files = {}) {
  std::ifstream file(tests_dir() / "text" / "golden" / "tiny_byte_bpe.json");
  nlohmann::json root = nlohmann::json::parse(file);
  root["normalizer"] = root["post_processor"] = nullptr;
  root["added_tokens"] = nlohmann::json::array();
  int id = 700;
  const auto add = [&](const std::string& content, bool is_special) {
    root["added_tokens"].push_back(
        {{"id", id++}, {"content", content}, {"special", is_special}, {"normalized", false}});
  };
  for (const std::string& mark : special) add(mark, true);
  for (const std::string& mark : other) add(mark, false);
  files.tokenizer_json = root.dump();
  files.chat_template_jinja = chat_template;
  auto tokenizer = Tokenizer::from_files(files);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

// Names of special tokens that a template writes.
inline std::set<std::string> marks_of(const std::string& chat_template) {
  static const std::regex mark(
      R"re(<[|/]?(?:\|)?[A-Za-z0-9_:@｜▁]+\|?>|\[e~\[|<\|[^<>|'"\s]+\|>|<｜[^<>'"\s]+｜>|\[/?[A-Z_]{3,}\])re");
  std::set<std::string> marks;
  for (std::sregex_iterator it(chat_template.begin(), chat_template.end(), mark), end; it != end;
       ++it)
    marks.insert(it->str());
  return marks;
}

inline std::set<std::string> names_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::set<std::string> names;
  for (const TokenId id : ids) names.emplace(tokenizer.piece(id));
  return names;
}

}  // namespace penstock
