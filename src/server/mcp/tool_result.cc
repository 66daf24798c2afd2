#include "server/mcp/tool_result.h"

#include "frontend/json_fields.h"

namespace penstock {
namespace {

// Describes a part that is not text. data: base64.
std::string note_of(const std::string& type, const McpJson& part) {
  const std::string kind = get_string(part, "mimeType", "unknown type");
  const std::string where = get_string(part, "uri");
  const McpJson& data = get_field(part, "data");
  const size_t n_bytes = data.is_string() ? data.get_ref<const std::string&>().size() / 4 * 3 : 0;
  std::string note = fmt::format("[{}: {}", type, kind);
  if (!where.empty()) note += ", " + where;
  if (n_bytes > 0) note += fmt::format(", {} bytes", n_bytes);
  return note + "]";
}

std::string text_of(const McpJson& part) {
  const std::string type = get_string(part, "type", "part");
  if (type == "text") return get_string(part, "text");
  const McpJson& resource = get_field(part, "resource");
  if (resource.is_object()) {
    if (get_field(resource, "text").is_string()) return get_string(resource, "text");
    return note_of(type, resource);
  }
  return note_of(type, part);
}

}  // namespace

std::string cut_text(std::string text, size_t most) {
  if (text.size() <= most) return text;
  const size_t n_all = text.size();
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  text.resize(most);
  return text + fmt::format("\n[cut: {} of {} bytes]", most, n_all);
}

McpResult read_tool_result(const McpJson& result, size_t most) {
  McpResult read;
  read.failed = get_bool(result, "isError");
  const McpJson& content = get_field(result, "content");
  for (const McpJson& part : content.is_array() ? content : McpJson::array()) {
    if (read.text.size() > most) break;
    if (!read.text.empty()) read.text += '\n';
    read.text += text_of(part);
  }
  const McpJson& structured = get_field(result, "structuredContent");
  if (read.text.empty() && !structured.is_null())
    read.text = structured.dump(-1, ' ', false, McpJson::error_handler_t::replace);
  read.text = cut_text(std::move(read.text), most);
  return read;
}

}  // namespace penstock
