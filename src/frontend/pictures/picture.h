// Pictures and sounds of a request, from the file that a client sent to the places of a prompt. What is
// said of pictures is true of sounds as well, unless it speaks of pixels.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "images/image_processor.h"
#include "images/video_processor.h"
#include "penstock/engine.h"
#include "sounds/sound_processor.h"

namespace penstock {

// A video as a client sent it.
struct VideoFrames {
  std::vector<std::string> files;  // image files
  VideoInfo info;                  // without sizes
};

// A picture as a client sent it.
struct Picture {
  std::string where;                        // for messages: "messages[0].content[1]"
  std::shared_ptr<const std::string> file;  // bytes of an image or sound file
  bool is_sound = false;
  // A window of a sound that was decoded; `file` is empty then. Null: there is a file.
  std::shared_ptr<const SoundView> window = nullptr;

  // Instead of a file; `file` is empty then. Null: no video.
  std::shared_ptr<const VideoFrames> video = nullptr;

  size_t bytes() const;
};

// A picture whose header was read: what it becomes in the prompt is known, its pixels are not decoded.
struct PlannedPicture {
  Picture picture;
  ImagePlan plan;
  // Hash of the file and of how it is processed.
  std::array<uint64_t, 2> identity{};
  // With settings of its request; null: the model's.
  std::shared_ptr<const ImageProcessor> processor;
  std::shared_ptr<const VideoProcessor> video_processor = nullptr;
};

// Soft tokens in a row of a prompt, which belong to one picture.
struct PictureRun {
  int first = 0, count = 0;  // in the prompt
  int picture = 0;           // index
  int first_row = 0;         // of the picture's rows
  int kind = 0;              // of PicturePrompt: 0 a picture's, 1 a sound's, 2 a video's
  std::string token = {};    // in its places; "": the kind's soft token
};

// The pictures of one prompt and their places.
struct PromptPictures {
  std::vector<PlannedPicture> pictures;
  std::vector<PictureRun> runs;  // ascending

  bool empty() const { return pictures.empty(); }
};

using PictureRows = std::vector<std::shared_ptr<const EmbeddingRows>>;  // by picture

// Returns Request::embeddings. unit: patches on a side of a token, for positions on axes; 0: the
// model's positions have none.
std::vector<PromptEmbeddings> embeddings_of(const PromptPictures& pictures, const PictureRows& rows,
                                            int unit);

}  // namespace penstock
