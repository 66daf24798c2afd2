#include "server/api/infill.h"

#include <algorithm>

#include "text/fill_in_middle.h"

namespace penstock {
namespace {

Result<std::vector<TokenId>> ids_of_text(const ServedModel& model, const std::string& text) {
  RETURN_IF_ERROR(model.session().check_length(text));
  // Text of special tokens in the client's code is encoded as plain text.
  return model.session().encode(text, {.add_bos = false, .parse_special = false});
}

void append_ids(std::vector<TokenId>& to, std::span<const TokenId> tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

// Formats the other files for the model's family: after the repository-name token if there is one,
// each after a file token, or else after a separator line that no language uses.
Result<std::vector<TokenId>> tokens_of_files(const ServedModel& model, const InfillParts& parts) {
  const FillInMiddle marks = fill_in_middle_of(model.tokenizer());
  std::vector<TokenId> ids;
  if (parts.files.empty()) return ids;
  const auto add = [&](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ids_of_text(model, text));
    append_ids(ids, tokens);
    return {};
  };
  if (marks.repository != kNoToken) {
    ids.push_back(marks.repository);
    RETURN_IF_ERROR(add("myproject\n"));
  }
  for (const InfillFile& file : parts.files) {
    if (marks.file != kNoToken) ids.push_back(marks.file);
    RETURN_IF_ERROR(add(marks.file != kNoToken ? file.name + "\n" : "\n\n--- snippet ---\n\n"));
    RETURN_IF_ERROR(add(file.text));
  }
  if (marks.file == kNoToken) return ids;
  ids.push_back(marks.file);
  RETURN_IF_ERROR(add("filename\n"));
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> infill_prompt(const ServedModel& model, const InfillParts& parts) {
  const Tokenizer& tokenizer = model.tokenizer();
  const FillInMiddle marks = fill_in_middle_of(tokenizer);
  if (!marks.known()) {
    return errorf(
        ErrorCode::kUnsupported,
        "model: {} fills in no middle: its vocabulary has no tokens for prefix, suffix and middle",
        model.name());
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> files, tokens_of_files(model, parts));
  ASSIGN_OR_RETURN(const std::vector<TokenId> prefix,
                   ids_of_text(model, parts.prefix + parts.begun));
  ASSIGN_OR_RETURN(const std::vector<TokenId> suffix, ids_of_text(model, parts.suffix));
  const size_t n_marks = tokenizer.add_bos() ? 4 : 3;
  const int64_t room = static_cast<int64_t>(model.max_model_len()) - parts.n_reserved -
                       static_cast<int64_t>(prefix.size() + suffix.size() + n_marks);
  if (static_cast<int64_t>(files.size()) > std::max<int64_t>(room, 0))
    files.erase(files.begin(), files.end() - std::max<int64_t>(room, 0));
  std::vector<TokenId> ids;
  ids.reserve(files.size() + prefix.size() + suffix.size() + n_marks);
  if (tokenizer.add_bos()) ids.push_back(tokenizer.bos());
  append_ids(ids, files);
  ids.push_back(marks.prefix);
  append_ids(ids, prefix);
  ids.push_back(marks.suffix);
  append_ids(ids, suffix);
  ids.push_back(marks.middle);
  return ids;
}

std::vector<TokenId> infill_ends(const ServedModel& model) {
  const FillInMiddle marks = fill_in_middle_of(model.tokenizer());
  std::vector<TokenId> ends;
  for (const TokenId id : {marks.pad, marks.repository, marks.file}) {
    if (id != kNoToken) ends.push_back(id);
  }
  return ends;
}

}  // namespace penstock
