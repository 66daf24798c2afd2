// Pictures and sounds of a request, from the file that a client sent to the places of a prompt. What is
// said of pictures is true of sounds as well, unless it speaks of pixels.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "images/image_processor.h"
#include "penstock/engine.h"
#include "sounds/sound_processor.h"

namespace penstock {

// A picture as a client sent it.
struct Picture {
  std::string where;                        // for messages: "messages[0].content[1]"
  std::shared_ptr<const std::string> file;  // bytes of an image or sound file
  bool is_sound = false;
  // A window of a sound that was decoded; `file` is empty then. Null: there is a file.
  std::shared_ptr<const SoundView> window = nullptr;

  size_t bytes() const {
    return window != nullptr ? window->values.size() * sizeof(float) : file->size();
  }
};

// A picture whose header was read: what it becomes in the prompt is known, its pixels are not decoded.
struct PlannedPicture {
  Picture picture;
  ImagePlan plan;
  // Hash of the file and of how it is processed.
  std::array<uint64_t, 2> identity{};
  // With settings of its request; null: the model's.
  std::shared_ptr<const ImageProcessor> processor;
};

// Soft tokens in a row of a prompt, which belong to one picture.
struct PictureRun {
  int first = 0, count = 0;  // in the prompt
  int picture = 0;           // index
  int first_row = 0;         // of the picture's rows
  bool is_sound = false;
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
