#include "frontend/chat/harmony.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/chat/marked_parser.h"
#include "frontend/chat/tag_formats.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>", kStart = "<|start|>",
                           kRecipient = "to=functions.";
// Marks that end a message's text.
constexpr std::array<std::string_view, 4> kEnds{"<|end|>", "<|return|>", "<|call|>", kStart};

class HarmonyParser final : public ReplyParser {
 public:
  ReplyPart push(std::string_view text) override {
    ReplyPart out;
    buffer_ += text;
    while (step(out, false)) {
    }
    return out;
  }

  ReplyPart finish(bool cut) override {
    ReplyPart out;
    if (cut && (state_ == State::kText || state_ == State::kReasoning))
      buffer_.resize(buffer_.size() - begun_mark(buffer_, {kEnds.begin(), kEnds.end()}));
    if (cut && state_ == State::kHeader) {
      buffer_.resize(buffer_.size() - begun_mark(buffer_, {kEnds.begin(), kEnds.end()}));
      buffer_.resize(buffer_.size() - begun_mark(buffer_, {std::string(kChannel)}));
    }
    while (step(out, true)) {
    }
    if (state_ == State::kHeader) {
      const std::string_view rest = std::string_view(buffer_).substr(skip_space(buffer_));
      const bool begun = rest.starts_with(kChannel) || rest.starts_with(kStart);
      if (!rest.empty() && !begun) out.content += buffer_;
      buffer_.clear();
    } else if (state_ == State::kCall) {
      call_ += std::exchange(buffer_, {});
      size_t at = 0;
      const bool begun = !is_space_only(call_) && find_object(call_, at) == Match::kMore;
      if (!begun) end_call(out);
    } else if (state_ == State::kArguments) {
      out.end_call();
    }
    return out;
  }

 private:
  enum class State : uint8_t { kHeader, kReasoning, kText, kCall, kArguments, kPlain };

  bool step(ReplyPart& out, bool at_end) {
    if (state_ == State::kPlain) {
      out.content += std::exchange(buffer_, {});
      return false;
    }
    if (state_ == State::kArguments) return step_arguments(out);
    return state_ == State::kHeader ? step_header() : step_body(out, at_end);
  }

  // Text that cannot begin a header is content outside a message.
  bool step_header() {
    const size_t n_space = skip_space(buffer_);
    const std::string_view rest = std::string_view(buffer_).substr(n_space);
    const auto begins = [&](std::string_view mark) {
      return rest.starts_with(mark) || may_become(rest, mark);
    };
    const bool may_be_header = begins(kChannel) || begins(kStart) || begins(kRecipient) ||
                               std::ranges::any_of(kEnds, begins);
    if (n_space > kMostHeader || !may_be_header) {
      state_ = State::kPlain;
      return true;
    }
    for (const std::string_view end : kEnds) {
      if (end != kStart && rest.starts_with(end))
        return buffer_.erase(0, buffer_.find(end) + end.size()), true;
    }
    const size_t hit = buffer_.find(kMessage);
    if (hit > kMostHeader) {
      if (hit == std::string::npos && buffer_.size() <= kMostHeader + kMessage.size()) return false;
      state_ = State::kPlain;
      return true;
    }
    open_message(buffer_.substr(0, hit));
    buffer_.erase(0, hit + kMessage.size());
    return true;
  }

  void open_message(std::string header) {
    name_.clear();
    if (const size_t to = header.find(kRecipient); to != std::string::npos) {
      const size_t start = to + kRecipient.size();
      name_ = header.substr(start, header.find_first_of(" <\t\n", start) - start);
    }
    header_ = std::move(header);
    if (is_function_name(name_)) {
      state_ = State::kCall;
    } else if (header_.find("analysis") != std::string::npos) {
      state_ = State::kReasoning;
    } else {
      state_ = State::kText;
    }
  }

  bool step_body(ReplyPart& out, bool at_end) {
    // otherwise the text did not begin like arguments
    if (state_ == State::kCall && call_.empty()) {
      size_t start = 0;
      const Match match = find_object(buffer_, start);
      if (match == Match::kMore && !at_end) return false;
      if (match == Match::kYes) {
        out.begin_call(name_);
        copy_ = {};
        state_ = State::kArguments;
        return true;
      }
    }
    size_t end = std::string::npos, held = 0;
    std::string_view found;
    for (const std::string_view mark : kEnds) {
      if (const size_t hit = buffer_.find(mark); hit < end) {
        end = hit;
        found = mark;
      }
      for (size_t n = std::min(mark.size() - 1, buffer_.size()); n > held && !at_end; --n) {
        if (std::string_view(buffer_).ends_with(mark.substr(0, n))) held = n;
      }
    }
    const size_t n = end == std::string::npos ? buffer_.size() - held : end;
    take(out, n);
    if (end == std::string::npos) return false;
    if (found != kStart) buffer_.erase(0, found.size());
    if (state_ == State::kCall) end_call(out);
    state_ = State::kHeader;
    return true;
  }

  // Marks inside strings of the arguments are text.
  bool step_arguments(ReplyPart& out) {
    std::string piece;
    buffer_.erase(0, copy_.take(buffer_, piece));
    if (!piece.empty()) out.add_arguments(piece);
    if (!copy_.done()) return false;
    out.end_call();
    state_ = State::kHeader;
    return true;
  }

  void take(ReplyPart& out, size_t n) {
    std::string& to = state_ == State::kReasoning ? out.reasoning
                      : state_ == State::kCall    ? call_
                                                  : out.content;
    to.append(buffer_, 0, n);
    buffer_.erase(0, n);
  }

  void end_call(ReplyPart& out) {
    const std::string text = std::exchange(call_, {});
    if (auto arguments =
            is_space_only(text) ? std::optional<std::string>("{}") : arguments_of_json(text)) {
      out.calls.push_back({name_, *std::move(arguments)});
    } else {
      out.content += header_ + std::string(kMessage) + text;
    }
  }

  static constexpr size_t kMostHeader = 1024;

  State state_ = State::kHeader;
  std::string buffer_;         // undecided text
  std::string header_, name_;  // of the open message
  std::string call_;           // text in place of the arguments
  JsonCopy copy_;
};

}  // namespace

bool is_harmony(const ToolParserRow& row) { return row.name == std::string_view("harmony"); }

std::unique_ptr<ReplyParser> make_harmony_parser() { return std::make_unique<HarmonyParser>(); }

Json any_message_text() { return tag_formats::any_text({kEnds.begin(), kEnds.end()}); }

Json harmony_grammar(const HarmonyReply& reply) {
  using namespace tag_formats;
  const Json next = text("<|end|><|start|>assistant");
  const auto message = [&](const char* channel) {
    return sequence_of(text(std::string("<|channel|>") + channel + "<|message|>"),
                       any_message_text(), next);
  };
  Json before = message("analysis"), ends = Json::array();
  if (reply.with_preamble) before = either(list_of(before, message("commentary")));
  if (reply.calls != nullptr)
    ends.push_back(sequence_of(text("<|channel|>commentary to=functions."), *reply.calls));
  if (reply.answer != nullptr)
    ends.push_back(sequence_of(text("<|channel|>final<|message|>"), *reply.answer));
  return sequence_of(star(std::move(before)), either(std::move(ends)));
}

}  // namespace penstock
