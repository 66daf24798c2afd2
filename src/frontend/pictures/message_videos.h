// Videos of conversations: lists of frames.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "frontend/pictures/picture.h"

namespace penstock {

// Whether a part of a message is a video: {"type": "video_url", "video_url": {"url": U}} (or U itself),
// {"type": "video", "video": U}. Neither is the placeholder {"type": "video"}.
bool is_video(const nlohmann::ordered_json& part);

// Returns the video of a part. U: vLLM's data URL of frames (data:video/jpeg;base64,F,F,...), or a list of
// frames, each a data URL of an image or a binary value, the bytes of an image file. Beside it: fps of
// the video (a number), and vLLM's metadata (an object with fps, total_num_frames, duration,
// frames_indices, do_sample_frames). Errors: kInvalidArgument (a container such as MP4, by name, another
// URL, damaged base64, more than `most` frames), with the part's place.
Result<Picture> video_of(const nlohmann::ordered_json& part, std::string where, size_t most);

// Returns the bytes of base64 of a part's frames.
size_t video_bytes(const nlohmann::ordered_json& part);

// Reads vLLM's metadata of a video. Errors: kInvalidArgument, by name.
Status read_video_metadata(const nlohmann::ordered_json& metadata, VideoInfo& info);

}  // namespace penstock
