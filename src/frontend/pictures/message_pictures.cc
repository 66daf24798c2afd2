#include "frontend/pictures/message_pictures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "frontend/pictures/message_videos.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Whether a part is the placeholder that take_pictures() puts in place of a picture, a video or a sound.
bool is_image(const Json& part) {
  const auto type = part.is_object() ? part.find("type") : part.end();
  return type != part.end() && (*type == "image" || *type == "audio" || *type == "video");
}

// Returns the URL of a part that is a picture; null: it is none.
const Json* url_of(const Json& part) {
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) return nullptr;
  const char* field = *type == "image_url" || *type == "input_image" ? "image_url"
                      : *type == "image"                             ? "image"
                      : *type == "audio_url"                         ? "audio_url"
                      : *type == "audio"                             ? "audio"
                                                                     : nullptr;
  if (field == nullptr) return nullptr;
  static const Json kMissing = nullptr;
  const auto found = part.find(field);
  if (found == part.end()) return &kMissing;
  if (!found->is_object()) return &*found;
  const auto url = found->find("url");
  return url == found->end() ? &kMissing : &*url;
}

Result<Picture> decoded(std::string_view base64, std::string where) {
  auto file = decode_base64(base64, Base64::kLoose);
  if (!file) {
    const std::string what = file.error() < base64.size()
                                 ? fmt::format("character {} is no base64", file.error())
                                 : "the base64 is cut";
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", where, what);
  }
  return Picture{std::move(where), std::make_shared<const std::string>(*std::move(file))};
}

// Returns the sound of a part; null: it is none.
const Json* sound_in(const Json& part) {
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string() || *type != "input_audio") return nullptr;
  static const Json kMissing = nullptr;
  const auto found = part.find("input_audio");
  return found == part.end() ? &kMissing : &*found;
}

Result<Picture> sound_of(const Json& sound, std::string where) {
  const auto data = sound.is_object() ? sound.find("data") : sound.end();
  if (data == sound.end() || !data->is_string()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected input_audio with data, a sound file in base64", where);
  }
  ASSIGN_OR_RETURN(Picture picture, decoded(data->get_ref<const std::string&>(), std::move(where)));
  picture.is_sound = true;
  return picture;
}

Result<Picture> picture_of(const Json& url, std::string where, bool is_sound) {
  const auto refuse = [&](const std::string& got) {
    return errorf(
        ErrorCode::kInvalidArgument, "{}: expected a data URL of {}, got {}", where,
        is_sound ? "a sound (data:audio/wav;base64,...)" : "an image (data:image/png;base64,...)",
        got);
  };
  if (url.is_binary()) {
    const auto& bytes = url.get_binary();
    return Picture{std::move(where),
                   std::make_shared<const std::string>(bytes.begin(), bytes.end()), is_sound};
  }
  if (!url.is_string()) return refuse(url.is_null() ? "none" : "no text");
  const std::string_view text = url.get_ref<const std::string&>();
  if (!text.starts_with("data:")) {
    const std::string_view scheme = text.substr(0, std::min<size_t>(text.find(':'), 16));
    return refuse(
        text.find("://") < 16
            ? fmt::format("a URL with scheme {}, which this server does not fetch", scheme)
            : "something else");
  }
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || !text.substr(0, comma).ends_with(";base64"))
    return refuse("a data URL without base64");
  ASSIGN_OR_RETURN(Picture picture, decoded(text.substr(comma + 1), std::move(where)));
  picture.is_sound = is_sound;
  return picture;
}

}  // namespace

Result<std::vector<Picture>> take_pictures(Json& messages, size_t most, size_t most_frames) {
  std::vector<Picture> pictures;
  size_t n_frames = 0;
  if (!messages.is_array()) return pictures;
  for (size_t m = 0; m < messages.size(); ++m) {
    if (!messages[m].is_object()) continue;
    const auto content = messages[m].find("content");
    if (content == messages[m].end() || !content->is_array()) continue;
    for (size_t i = 0; i < content->size(); ++i) {
      Json& part = (*content)[i];
      if (!part.is_object()) continue;
      const Json* const url = url_of(part);
      const Json* const sound = sound_in(part);
      const bool moves = is_video(part);
      if (url == nullptr && sound == nullptr && !moves) continue;
      std::string where = fmt::format("messages[{}].content[{}]", m, i);
      if (const auto place = part.find(kPicturePlace); place != part.end() && place->is_binary())
        where.assign(place->get_binary().begin(), place->get_binary().end());
      if (pictures.size() == most) {
        return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} pictures or sounds",
                      where, most);
      }
      if (moves) {
        ASSIGN_OR_RETURN(Picture video, video_of(part, std::move(where), most_frames - n_frames));
        n_frames += video.video->files.size();
        pictures.push_back(std::move(video));
        part = {{"type", "video"}};
        continue;
      }
      const bool has_sound =
          sound != nullptr || part["type"] == "audio_url" || part["type"] == "audio";
      ASSIGN_OR_RETURN(Picture picture, sound != nullptr
                                            ? sound_of(*sound, std::move(where))
                                            : picture_of(*url, std::move(where), has_sound));
      pictures.push_back(std::move(picture));
      part = {{"type", has_sound ? "audio" : "image"}};
    }
  }
  return pictures;
}

size_t picture_bytes(const Json& content) {
  size_t n = 0;
  if (!content.is_array()) return n;
  for (const Json& part : content) {
    if (!part.is_object()) continue;
    if (is_video(part)) n += video_bytes(part);
    if (const Json* sound = sound_in(part); sound != nullptr && sound->is_object()) {
      const auto data = sound->find("data");
      if (data != sound->end() && data->is_string())
        n += data->get_ref<const std::string&>().size();
    }
    const Json* const url = url_of(part);
    if (url == nullptr || !url->is_string()) continue;
    const std::string_view text = url->get_ref<const std::string&>();
    if (text.starts_with("data:")) n += text.size() - std::min(text.size(), text.find(','));
  }
  return n;
}

void images_as_text(const std::function<std::string(std::string_view)>& placeholder_of,
                    Json& messages) {
  for (Json& message : messages) {
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (content == message.end() || !content->is_array()) continue;
    for (Json& part : *content) {
      if (!is_image(part)) continue;
      const std::string type = part["type"].get<std::string>();
      part = {{"type", "text"}, {"text", placeholder_of(type)}};
    }
  }
}

void images_behind_tools(Json& messages) {
  Json result = Json::array(), waiting = Json::array();
  const auto flush = [&] {
    if (waiting.empty()) return;
    Json message = {{"role", "user"}};
    message["content"] = std::exchange(waiting, Json::array());
    result.push_back(std::move(message));
  };
  for (Json& message : messages) {
    const bool of_tool =
        message.is_object() && message.contains("role") && message["role"] == "tool";
    if (!of_tool) flush();
    if (of_tool && message.contains("content") && message["content"].is_array()) {
      Json kept = Json::array();
      for (Json& part : message["content"])
        (is_image(part) ? waiting : kept).push_back(std::move(part));
      message["content"] = std::move(kept);
    }
    result.push_back(std::move(message));
  }
  flush();
  messages = std::move(result);
}

}  // namespace penstock
