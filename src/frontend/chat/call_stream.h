// Calls while the model writes them: the name as soon as it is certain, then the arguments as they
// come.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/chat/call_format.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {

// One per opening. What it gives depends on the text alone and not on how it was cut. Once it has
// begun, what follows is part of a call, however broken it is.
class CallStream {
 public:
  enum class Step : uint8_t {
    kMore,      // needs more text
    kDone,      // the calls have ended; `text` holds what follows them
    kNotACall,  // `text` is as it was, and nothing was given
  };
  virtual ~CallStream() = default;

  // Reads on. text: all that follows the opening and was not taken yet; what is taken is erased.
  virtual Step read(std::string& text, ReplyPart& out) = 0;
  // Whether a call was given, at least its name.
  virtual bool begun() const { return begun_; }
  // Ends the call that the end of the reply has cut.
  virtual void cut(ReplyPart& out) {
    if (open_) end(out);
  }

 protected:
  void begin(ReplyPart& out, std::string name, std::string id = {}) {
    begun_ = open_ = true;
    out.begin_call(std::move(name), std::move(id));
  }
  void end(ReplyPart& out) {
    open_ = false;
    out.end_call();
  }
  // Gives a call that is complete.
  void give(ReplyPart& out, ToolCall call) {
    begun_ = true;
    out.calls.push_back(std::move(call));
    out.open = false;
  }

 private:
  bool begun_ = false, open_ = false;
};

// The arguments of one call.
class ArgumentStream {
 public:
  virtual ~ArgumentStream() = default;
  // As CallStream::read, up to the call's end. arguments: gets what is new of their JSON text.
  virtual CallStream::Step read(std::string& text, std::string& arguments) = 0;
};

// Copies a JSON object as it is written, without the white space between its tokens. Control
// characters in strings, which JSON does not allow, are escaped.
class JsonCopy {
 public:
  // Appends to `out` what the beginning of `text` adds; returns how many bytes it has taken.
  size_t take(std::string_view text, std::string& out);
  // Whether the object has ended.
  bool done() const { return done_; }

 private:
  void put(char c, std::string& out);

  int depth_ = 0;
  bool quoted_ = false, escaped_ = false, done_ = false;
  char last_ = 0;       // what was put last
  bool space_ = false;  // white space has followed it
};

// Appends the character as it stands in a JSON string.
void append_escaped(char c, std::string& out);

enum class Match : uint8_t { kYes, kNo, kMore };

// Moves `at` behind what `pattern` stands for, in which white space stands for any, "{n}" for
// digits, "{id}" for letters and digits, "{type}" for the name of a JSON type, "{name}" for that of a
// function. field: the text of the pattern's last field, if it has one.
Match take_pattern(std::string_view pattern, std::string_view text, size_t& at,
                   std::string_view* field = nullptr);
struct CallHead {
  Match match = Match::kMore;  // kYes: the head is certain
  size_t at = 0;               // where its arguments begin
  ToolCall call = {};          // name and id
  // null: there are none; the call ends at `at`
  std::unique_ptr<ArgumentStream> arguments = nullptr;
};

// One call. head: finds its head in the text behind the opening; heads have at most 4,096 bytes.
std::unique_ptr<CallStream> headed_stream(std::function<CallHead(std::string_view text)> head);
// A JSON object, then what call_end stands for.
std::unique_ptr<ArgumentStream> json_arguments(std::string_view call_end);

// Elements (ArgumentForm::kElements) up to the end of the call. types: of the tool's parameters; null:
// not known. All outlive the stream.
std::unique_ptr<ArgumentStream> element_arguments(const CallFormat& format,
                                                  const CallWriting& writing,
                                                  const ParameterTypes::mapped_type* types);

// Moves `at` to the brace of a JSON object; kYes once what stands behind the brace fits.
Match find_object(std::string_view text, size_t& at);
std::string_view without_space(std::string_view text);

}  // namespace penstock
