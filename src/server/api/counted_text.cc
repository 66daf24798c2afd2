#include "server/api/counted_text.h"

#include <algorithm>
#include <array>

#include "frontend/pictures/message_pictures.h"
#include "server/api/api_request.h"
#include "server/routing/errors.h"

namespace penstock {
namespace {

std::string too_much_text(size_t most, size_t n_text) {
  return fmt::format(
      "body: expected at most {} bytes where a text is not for a model to answer, got {}: cut it",
      most, n_text);
}

// The backslash is that of \/ in strings of JSON.
constexpr std::array<bool, 256> kInBase64 = [] {
  std::array<bool, 256> in{};
  for (const char c :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                        "+/=-_\\"))
    in[static_cast<unsigned char>(c)] = true;
  return in;
}();

bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Moves behind `: "`; npos: that does not stand there.
size_t behind_colon(std::string_view body, size_t at) {
  const auto skip = [&] {
    while (at < body.size() && is_json_space(body[at])) ++at;
  };
  skip();
  if (at == body.size() || body[at] != ':') return std::string_view::npos;
  ++at;
  skip();
  return at < body.size() && body[at] == '"' ? at + 1 : std::string_view::npos;
}

// Counts bytes of base64 behind each of the marks.
size_t base64_behind(std::string_view body, std::string_view mark, bool is_member) {
  size_t n = 0;
  for (size_t at = body.find(mark); at != std::string_view::npos; at = body.find(mark, at)) {
    at += mark.size();
    const size_t start = is_member ? behind_colon(body, at) : at;
    if (start == std::string_view::npos) continue;
    at = start;
    // Frames of a video are apart by commas.
    while (at < body.size() &&
           (kInBase64[static_cast<unsigned char>(body[at])] || (!is_member && body[at] == ',')))
      ++at;
    n += at - start;
  }
  return n;
}

// Bytes of base64 in Anthropic's blocks, of results of tools as well.
size_t bytes_in_blocks(const json& content) {
  size_t n = picture_bytes(content);
  if (!content.is_array()) return n;
  for (const json& block : content) {
    const std::string type = get_string(block, "type");
    if (type == "image") {
      const json& data = get_field(get_field(block, "source"), "data");
      if (data.is_string()) n += data.get_ref<const std::string&>().size();
    } else if (type == "tool_result") {
      n += bytes_in_blocks(get_field(block, "content"));
    }
  }
  return n;
}

}  // namespace

size_t base64_bytes_in(std::string_view body) {
  return base64_behind(body, "base64,", false) + base64_behind(body, "\"data\"", true);
}

net::awaitable<bool> run_on_text(Services& services, Exchange& exchange, size_t n_bytes,
                                 std::function<void()> work) {
  const HttpRequest& request = exchange.request();
  const size_t most = most_text(services), n = request.body.size();
  size_t n_text = n;
  co_await services.run_apart(exchange, n_bytes, [&] {
    if (n > most) n_text -= std::min(n, base64_bytes_in(request.body));
    if (n_text <= most) work();
  });
  if (n_text <= most) co_return true;
  co_await exchange.reply(error_reply(request, 413, too_much_text(most, n_text)));
  co_return false;
}

Status check_read_text(const Services& services, const HttpRequest& request, const json& body) {
  const size_t most = most_text(services), n = request.body.size();
  if (n <= most) return {};
  size_t n_files = 0;
  for (const char* list : {"messages", "input"}) {
    const json& items = get_field(body, list);
    if (!items.is_array()) continue;
    for (const json& item : items) {
      for (const char* parts : {"content", "output"})
        n_files += bytes_in_blocks(get_field(item, parts));
    }
  }
  const size_t n_text = n - std::min(n, n_files);
  if (n_text <= most) return {};
  return errorf(ErrorCode::kInvalidArgument, "{}", too_much_text(most, n_text));
}

}  // namespace penstock
