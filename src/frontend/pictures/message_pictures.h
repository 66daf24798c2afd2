// Takes pictures and sounds out of the messages of a conversation.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/pictures/picture.h"

namespace penstock {

// Member of a part that says where the client has sent it, where that is not its place in the messages: bytes,
// which no JSON of a client has.
inline constexpr const char* kPicturePlace = "penstock_place";

// Replaces every part that is a picture by {"type": "image"}, which chat templates know, and returns
// the pictures in their order. Parts: OpenAI's {"type": "image_url", "image_url": {"url": U}} (or U
// itself), {"type": "input_image", "image_url": U}, and {"type": "image", "image": U}, where U is a
// data URL in base64. Sounds become {"type": "audio"}: {"type": "input_audio", "input_audio": {"data":
// base64, "format": ...}}, whose format is found in the data, and vLLM's {"type": "audio_url",
// "audio_url": {"url": U}}, and {"type": "audio", "audio": U}. U may also be a binary value, the bytes
// of the file, which only callers in this process can make. Videos (message_videos.h) become {"type":
// "video"}. Errors: kInvalidArgument (a URL of another kind, damaged base64, more than `most` pictures, or
// than `most_frames` of all videos), with the part's place.
Result<std::vector<Picture>> take_pictures(nlohmann::ordered_json& messages, size_t most,
                                           size_t most_frames = 2048);

// Returns the bytes of base64 in the parts of a message's content that are pictures and sounds.
size_t picture_bytes(const nlohmann::ordered_json& content);

// Replaces the images, videos and sounds that take_pictures() left by text parts, their placeholders: for templates
// that take text only. placeholder_of: by "image", "video" and "audio".
void images_as_text(const std::function<std::string(std::string_view)>& placeholder_of,
                    nlohmann::ordered_json& messages);

// Moves images and sounds of tools' results into a message of the user behind these: for templates that take text
// there only.
void images_behind_tools(nlohmann::ordered_json& messages);

}  // namespace penstock
