#include "frontend/pictures/message_videos.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

bool has_video_type(const Json& part, const char* wanted) {
  const auto type = part.is_object() ? part.find("type") : part.end();
  return part.is_object() && type != part.end() && *type == wanted;
}

// Returns the URL or the frames of a part that is a video.
const Json& source_of(const Json& part) {
  static const Json kMissing = nullptr;
  const char* const field = has_video_type(part, "video_url") ? "video_url" : "video";
  const auto found = part.find(field);
  if (found == part.end()) return kMissing;
  if (!found->is_object()) return *found;
  const auto url = found->find("url");
  return url == found->end() ? kMissing : *url;
}

tl::unexpected<Error> refuse_video(const std::string& where, const std::string& got) {
  return errorf(
      ErrorCode::kInvalidArgument,
      "{}: expected the frames of a video (data:video/jpeg;base64,<frame>,<frame>...), got "
      "{}",
      where, got);
}

// "data:video/mp4;base64,..." -> "video/mp4"
std::string_view media_type(std::string_view url) {
  url.remove_prefix(std::string_view("data:").size());
  return url.substr(0, std::min<size_t>(url.find_first_of(";,"), 40));
}

Result<std::string> decoded_frame(std::string_view base64, const std::string& where) {
  auto file = decode_base64(base64, Base64::kLoose);
  if (file) return *std::move(file);
  return errorf(ErrorCode::kInvalidArgument, "{}: {}", where,
                file.error() < base64.size()
                    ? fmt::format("character {} of a frame is no base64", file.error())
                    : "the base64 of a frame is cut");
}

// The frames of a data URL.
Result<std::vector<std::string>> frames_of_url(std::string_view url, const std::string& where,
                                               size_t most) {
  if (!url.starts_with("data:")) {
    const std::string_view scheme = url.substr(0, std::min<size_t>(url.find(':'), 16));
    return refuse_video(
        where, url.find("://") < 16
                   ? fmt::format("a URL with scheme {}, which this server does not fetch", scheme)
                   : "something else");
  }
  const std::string_view type = media_type(url);
  if (type != "video/jpeg")
    return refuse_video(where, fmt::format("{}: containers are not taken apart here", type));
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64"))
    return refuse_video(where, "a data URL without base64");
  url.remove_prefix(comma + 1);
  std::vector<std::string> files;
  while (true) {
    const size_t end = url.find(',');
    if (files.size() == most) return refuse_video(where, fmt::format("more than {}", most));
    ASSIGN_OR_RETURN(files.emplace_back(), decoded_frame(url.substr(0, end), where));
    if (end == std::string_view::npos) return files;
    url.remove_prefix(end + 1);
  }
}

Result<std::vector<std::string>> frames_of_list(const Json& list, const std::string& where,
                                                size_t most) {
  if (list.size() > most)
    return refuse_video(where, fmt::format("{}, at most {}", list.size(), most));
  std::vector<std::string> files;
  for (const Json& frame : list) {
    if (frame.is_binary()) {
      files.emplace_back(frame.get_binary().begin(), frame.get_binary().end());
      continue;
    }
    if (!frame.is_string()) return refuse_video(where, "a frame that is no data URL of an image");
    const std::string_view url = frame.get_ref<const std::string&>();
    const size_t comma = url.find(',');
    if (!url.starts_with("data:image/") || comma == std::string_view::npos ||
        !url.substr(0, comma).ends_with(";base64"))
      return refuse_video(where, "a frame that is no data URL of an image in base64");
    ASSIGN_OR_RETURN(files.emplace_back(), decoded_frame(url.substr(comma + 1), where));
  }
  return files;
}

Status read_number(const Json& metadata, const char* name, double most, double& out) {
  const auto found = metadata.find(name);
  if (found == metadata.end() || found->is_null()) return {};
  if (found->is_number() && found->get<double>() > 0 && found->get<double>() <= most) {
    out = found->get<double>();
    return {};
  }
  return errorf(ErrorCode::kInvalidArgument, "{}: expected a number above 0, got {}", name,
                found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
}

}  // namespace

bool is_video(const Json& part) {
  return has_video_type(part, "video_url") || has_video_type(part, "video");
}

Status read_video_metadata(const Json& metadata, VideoInfo& info) {
  if (metadata.is_null()) return {};
  if (!metadata.is_object())
    return make_error(ErrorCode::kInvalidArgument, "metadata: expected an object");
  RETURN_IF_ERROR(read_number(metadata, "fps", 1e6, info.fps));
  RETURN_IF_ERROR(read_number(metadata, "duration", 1e9, info.seconds));
  double total = 0;
  RETURN_IF_ERROR(read_number(metadata, "total_num_frames", 1 << 30, total));
  info.n_of_video = static_cast<int>(total);
  if (const auto found = metadata.find("do_sample_frames"); found != metadata.end()) {
    if (!found->is_boolean() && !found->is_null())
      return make_error(ErrorCode::kInvalidArgument, "do_sample_frames: expected true or false");
    if (found->is_boolean()) info.choose = found->get<bool>();
  }
  const auto indices = metadata.find("frames_indices");
  if (indices == metadata.end() || indices->is_null()) return {};
  if (!indices->is_array() || indices->size() > (size_t{1} << 20))
    return make_error(ErrorCode::kInvalidArgument, "frames_indices: expected a list of integers");
  for (const Json& index : *indices) {
    if (!index.is_number_integer() || index.get<double>() < 0 || index.get<double>() > (1 << 30))
      return make_error(ErrorCode::kInvalidArgument,
                        "frames_indices: expected integers from 0 to 2^30");
    info.indices.push_back(index.get<int>());
  }
  return {};
}

Result<Picture> video_of(const Json& part, std::string where, size_t most) {
  const Json& source = source_of(part);
  auto video = std::make_shared<VideoFrames>();
  if (source.is_array()) {
    ASSIGN_OR_RETURN(video->files, frames_of_list(source, where, most));
  } else if (source.is_string()) {
    ASSIGN_OR_RETURN(video->files,
                     frames_of_url(source.get_ref<const std::string&>(), where, most));
  } else {
    return refuse_video(where, source.is_null() ? "none" : "something else");
  }
  const auto metadata = part.find("metadata");
  Status read = metadata == part.end() ? Status() : read_video_metadata(*metadata, video->info);
  if (read) read = read_number(part, "fps", 1e6, video->info.fps);
  if (!read) return errorf(read.error().code, "{}: {}", where, read.error().message);
  Picture picture{std::move(where), std::make_shared<const std::string>()};
  picture.video = std::move(video);
  return picture;
}

size_t video_bytes(const Json& part) {
  const Json& source = source_of(part);
  if (source.is_string()) return source.get_ref<const std::string&>().size();
  size_t n = 0;
  if (source.is_array()) {
    for (const Json& frame : source)
      n += frame.is_string() ? frame.get_ref<const std::string&>().size() : 0;
  }
  return n;
}

}  // namespace penstock
