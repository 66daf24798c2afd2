"""The image processors of transformers that make_image_vectors.py compares with: settings as checkpoints publish them."""
import re
from types import SimpleNamespace

import torch
from transformers import AutoImageProcessor  # noqa: F401 (fills the registry)

CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PLAIN = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "rescale_factor": 0.00392156862745098}

# Name: model type, image processor (class and file), module and class of the processor, its file, attributes of the
# processor that transformers takes from a tokenizer, and settings of a request.
FAMILIES = {
    "qwen2_vl": dict(model="qwen2_vl", image=("Qwen2VLImageProcessor", {**CLIP, "min_pixels": 3136, "max_pixels": 401408, "patch_size": 14,
                     "temporal_patch_size": 2, "merge_size": 2}), processor=("qwen2_vl", "Qwen2VLProcessor", {}), tokens=dict(image_token="<|image_pad|>")),
    "qwen3_vl": dict(model="qwen3_vl", image=("Qwen2VLImageProcessorFast", {**PLAIN, **HALF, "size": {"shortest_edge": 65536, "longest_edge": 786432},
                     "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "resample": 3, "crop_size": None, "do_center_crop": None}),
                     processor=("qwen3_vl", "Qwen3VLProcessor", {}), tokens=dict(image_token="<|image_pad|>")),
    "qwen3_vl_request": dict(model="qwen3_vl", image=("Qwen2VLImageProcessorFast", {**HALF, "size": {"shortest_edge": 65536, "longest_edge": 16777216},
                     "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}), processor=("qwen3_vl", "Qwen3VLProcessor", {}),
                     tokens=dict(image_token="<|image_pad|>"), kwargs={"size": {"shortest_edge": 1024, "longest_edge": 65536}}),
    "gemma3": dict(model="gemma3", image=("Gemma3ImageProcessor", {**PLAIN, **HALF, "do_convert_rgb": None, "do_pan_and_scan": None, "image_seq_length": 256,
                   "pan_and_scan_max_num_crops": None, "pan_and_scan_min_crop_size": None, "pan_and_scan_min_ratio_to_activate": None, "resample": 2,
                   "size": {"height": 224, "width": 224}}), processor=("gemma3", "Gemma3Processor", {"image_seq_length": 256}),
                   tokens=dict(boi_token="<start_of_image>", image_token="<start_of_image>",
                               full_image_sequence="\n\n<start_of_image>" + "<image_soft_token>" * 256 + "<end_of_image>\n\n"), soft="<image_soft_token>"),
    "gemma3n": dict(model="gemma3n", image=("SiglipImageProcessorFast", {**PLAIN, **HALF, "do_normalize": False, "resample": 2, "size": {"height": 256, "width": 256},
                    "n_fft": 1024, "sampling_rate": 16000, "per_bin_mean": None}), processor=("gemma3n", "Gemma3nProcessor", {"image_seq_length": 64}),
                    tokens=dict(image_token="<image_soft_token>",
                                full_image_sequence="\n\n<start_of_image>" + "<image_soft_token>" * 64 + "<end_of_image>\n\n")),
    "pixtral": dict(model="llava", image=("PixtralImageProcessor", {**PLAIN, **CLIP, "patch_size": {"height": 16, "width": 16}, "resample": 3,
                    "size": {"longest_edge": 512}}), processor=("pixtral", "PixtralProcessor", {"patch_size": 16}),
                    tokens=dict(image_token="[IMG]", image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]", spatial_merge_size=1)),
    "mistral3": dict(model="mistral3", image=("PixtralImageProcessorFast", {**PLAIN, **CLIP, "patch_size": 14, "resample": 3, "size": {"longest_edge": 1540},
                     "do_pad": True}), processor=("pixtral", "PixtralProcessor", {"patch_size": 14, "spatial_merge_size": 2}),
                     tokens=dict(image_token="[IMG]", image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]"), call={"patch_size": 28}),
    "smolvlm": dict(model="smolvlm", image=("SmolVLMImageProcessor", {**PLAIN, **HALF, "do_image_splitting": True, "do_pad": True,
                    "max_image_size": {"longest_edge": 128}, "resample": 1, "size": {"longest_edge": 512}}),
                    processor=("idefics3", "Idefics3Processor", {"image_seq_len": 64}),
                    tokens=dict(image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>")),
    "idefics3_whole": dict(model="idefics3", image=("Idefics3ImageProcessor", {**PLAIN, **HALF, "do_image_splitting": False, "do_pad": True,
                    "max_image_size": {"longest_edge": 364}, "resample": 1, "size": {"longest_edge": 1456}}),
                    processor=("idefics3", "Idefics3Processor", {"image_seq_len": 169}),
                    tokens=dict(image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>")),
    "internvl": dict(model="internvl", image=("GotOcr2ImageProcessorFast", {**PLAIN, **IMAGENET, "crop_to_patches": False, "max_patches": 12, "min_patches": 1,
                     "resample": 3, "size": {"height": 224, "width": 224}}), processor=("internvl", "InternVLProcessor", {"image_seq_length": 64}),
                     tokens=dict(start_image_token="<img>", end_image_token="</img>", image_token="<IMG_CONTEXT>"), call={"crop_to_patches": True}),
    "llava": dict(model="llava", image=("CLIPImageProcessor", {**PLAIN, **CLIP, "crop_size": {"height": 336, "width": 336}, "do_center_crop": True, "resample": 3,
                  "size": {"shortest_edge": 336}}), processor=("llava", "LlavaProcessor", {"patch_size": 14, "vision_feature_select_strategy": "default",
                  "num_additional_image_tokens": 1}), tokens=dict(image_token="<image>")),
    "llava_padded": dict(model="llava", image=("LlavaImageProcessor", {**PLAIN, **CLIP, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True,
                  "do_pad": True, "resample": 3, "size": {"shortest_edge": 224}}), processor=("llava", "LlavaProcessor", {"patch_size": 14,
                  "vision_feature_select_strategy": "full"}), tokens=dict(image_token="<image>", num_additional_image_tokens=0)),
    "llava_larger_crop": dict(model="llava", image=("CLIPImageProcessor", {**PLAIN, **CLIP, "crop_size": {"height": 99, "width": 131}, "do_center_crop": True,
                  "resample": 3, "size": {"shortest_edge": 64}}), processor=("llava", "LlavaProcessor", {"patch_size": 16,
                  "vision_feature_select_strategy": "full"}), tokens=dict(image_token="<image>", num_additional_image_tokens=0)),
    "llava_siglip": dict(model="llava", image=("SiglipImageProcessor", {**PLAIN, **HALF, "resample": 3, "size": {"height": 128, "width": 128}}),
                  processor=("llava", "LlavaProcessor", {"patch_size": 16, "vision_feature_select_strategy": "full"}),
                  tokens=dict(image_token="<image>", num_additional_image_tokens=0)),
    "llava_next": dict(model="llava_next", image=("LlavaNextImageProcessor", {**PLAIN, **CLIP, "aspect_ratio_setting": "anyres",
                       "crop_size": {"height": 112, "width": 112}, "do_center_crop": True, "do_pad": True, "resample": 3, "size": {"shortest_edge": 112},
                       "image_grid_pinpoints": [[112, 224], [224, 112], [224, 224], [336, 112], [112, 336]]}),
                       processor=("llava_next", "LlavaNextProcessor", {"patch_size": 14, "vision_feature_select_strategy": "default",
                       "num_additional_image_tokens": 1}), tokens=dict(image_token="<image>")),
    "llava_onevision": dict(model="llava_onevision", image=("LlavaOnevisionImageProcessor", {**PLAIN, **HALF, "do_pad": True, "resample": 3,
                       "size": {"height": 96, "width": 96}, "image_grid_pinpoints": [[96 * r, 96 * c] for r in range(1, 7) for c in range(1, 7)]}),
                       processor=("llava_onevision", "LlavaOnevisionProcessor", {"num_image_tokens": 36, "vision_feature_select_strategy": "full",
                       "vision_aspect_ratio": "anyres_max_9"}), tokens=dict(image_token="<image>")),
    "gemma4": dict(model="gemma4", image=("Gemma4ImageProcessor", {**PLAIN, "do_normalize": False, "image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0],
                   "max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3, "resample": 3}), processor=("gemma4", "Gemma4Processor", {}),
                   tokens=dict(boi_token="<|image>", image_token="<|image|>", eoi_token="<image|>")),
    "gemma4_small": dict(model="gemma4", image=("Gemma4ImageProcessor", {**PLAIN, "do_normalize": False, "max_soft_tokens": 280, "patch_size": 16,
                   "pooling_kernel_size": 3, "resample": 3}), processor=("gemma4", "Gemma4Processor", {}), kwargs={"max_soft_tokens": 70},
                   tokens=dict(boi_token="<|image>", image_token="<|image|>", eoi_token="<image|>")),
    "lfm2_vl": dict(model="lfm2_vl", image=("Lfm2VlImageProcessorFast", {**PLAIN, **HALF, "do_image_splitting": True, "do_pad": True, "downsample_factor": 2,
                    "encoder_patch_size": 16, "max_image_tokens": 64, "max_num_patches": 256, "max_pixels_tolerance": 2.0, "max_tiles": 10, "min_image_tokens": 16,
                    "min_tiles": 2, "resample": 2, "return_row_col_info": False, "size": {"height": 512, "width": 512}, "tile_size": 128,
                    "use_thumbnail": True}), processor=("lfm2_vl", "Lfm2VlProcessor", {}),
                    tokens=dict(image_token="<image>", image_start_token="<|image_start|>", image_end_token="<|image_end|>",
                                image_thumbnail_token="<|img_thumbnail|>"), call={"return_row_col_info": True}, replace={"use_image_special_tokens": True}),
    "glm4v": dict(model="glm4v", image=("Glm4vImageProcessor", {**PLAIN, **CLIP, "size": {"shortest_edge": 12544, "longest_edge": 401408}, "patch_size": 14,
                  "temporal_patch_size": 2, "merge_size": 2}), processor=("glm4v", "Glm4vProcessor", {}), tokens=dict(image_token="<|image|>")),
    "glm46v": dict(model="glm46v", image=("Glm46VImageProcessorFast", {**PLAIN, **CLIP, "size": {"shortest_edge": 12544, "longest_edge": 9633792}, "patch_size": 14,
                  "temporal_patch_size": 2, "merge_size": 2}), processor=("glm46v", "Glm46VProcessor", {}), tokens=dict(image_token="<|image|>")),
    "llama4": dict(model="llama4", image=("Llama4ImageProcessorFast", {**PLAIN, **HALF, "max_patches": 16, "resample": 2, "resize_to_max_canvas": False,
                   "size": {"height": 112, "width": 112}}), processor=("llama4", "Llama4Processor", {"patch_size": 14, "pixel_shuffle_ratio": 0.5}),
                   tokens=dict(downsample_ratio=4)),
    "llama4_max": dict(model="llama4", image=("Llama4ImageProcessorFast", {**PLAIN, **HALF, "max_patches": 5, "resample": 2, "resize_to_max_canvas": True,
                   "size": {"height": 112, "width": 112}}), processor=("llama4", "Llama4Processor", {"patch_size": 14, "pixel_shuffle_ratio": 0.5}),
                   tokens=dict(downsample_ratio=4)),
    "kimi_k25": dict(model="kimi_k25", image=("Kimi_K25ImageProcessor", {**PLAIN, **HALF, "max_patches": 1024, "patch_size": 14, "merge_size": 2, "resample": 3,
                     "size": {"max_height": 64, "max_width": 64}}), processor=("kimi_k25", "Kimi_K25Processor", {}), tokens=dict(image_token="<|media_pad|>")),
    "minicpmv4_6": dict(model="minicpmv4_6", image=("MiniCPMV4_6ImageProcessor", {**PLAIN, **HALF, "max_slice_nums": 9, "scale_resolution": 224, "patch_size": 14,
                     "slice_mode": True, "downsample_mode": "16x", "use_image_id": True, "resample": 3}), processor=("minicpmv4_6", "MiniCPMV4_6Processor", {}),
                     tokens=dict(image_token="<|image_pad|>", image_start_token="<image>", image_end_token="</image>", slice_start_token="<slice>",
                                 slice_end_token="</slice>", slice_mode=True), replace={"image_token_divisor": 16}, before="<image_id>0</image_id>"),
    "cohere2_vision": dict(model="cohere2_vision", image=("Cohere2VisionImageProcessorFast", {**PLAIN, **HALF, "crop_to_patches": True, "max_patches": 12,
                     "min_patches": 1, "resample": 3, "patch_size": 16, "size": {"height": 128, "width": 128}}),
                     processor=("cohere2_vision", "Cohere2VisionProcessor", {}),
                     tokens=dict(patch_size=16, boi_token="<|START_OF_IMG|>", eoi_token="<|END_OF_IMG|>", image_token="<|IMG_PATCH|>",
                                 img_line_break_token="<|IMG_LINE_BREAK|>")),
    "aya_vision": dict(model="aya_vision", image=("GotOcr2ImageProcessor", {**PLAIN, **HALF, "crop_to_patches": True, "max_patches": 12, "min_patches": 1, "resample": 3,
                     "size": {"height": 84, "width": 84}}), processor=("aya_vision", "AyaVisionProcessor", {"patch_size": 14, "img_size": 84, "downsample_factor": 2}),
                     tokens=dict(patch_size=28, img_size=84, start_of_img_token="<|START_OF_IMG|>", end_of_img_token="<|END_OF_IMG|>",
                                 img_patch_token="<|IMG_PATCH|>", tile_token="TILE", tile_global_token="TILE_GLOBAL"), soft="<|IMG_PATCH|>",
                     call={"crop_to_patches": True}),
}
FAMILIES["gemma3_pan_and_scan"] = {**FAMILIES["gemma3"], "kwargs": {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 100}}
FAMILIES["gemma3_pan_and_scan"]["call"] = {"pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2}
FAMILIES["llama4"]["soft"] = FAMILIES["llama4_max"]["soft"] = "<|patch|>"


def make(family):
    """Returns the image processor, and the processor without a tokenizer."""
    import importlib

    import transformers
    name, settings = family["image"]
    images = getattr(transformers, name.removesuffix("Fast"))(**settings)
    module, name, attributes = family["processor"]
    cls = getattr(importlib.import_module(f"transformers.models.{module}.processing_{module}"), name)
    processor = cls.__new__(cls)
    for key, value in {**attributes, **family.get("tokens", {})}.items():
        setattr(processor, key, value)
    processor.image_processor = images
    return images, processor


def flat(name, family, out):
    """Returns what the image processor gave as a list of (height, width, numbers) of each view, without padding."""
    pixels = out["pixel_values"].float()
    if "image_grid_thw" in out:
        patch = family["image"][1]["patch_size"]
        _, h, w = out["image_grid_thw"][0].tolist()
        return [(h * patch, w * patch, pixels)]
    if name.startswith("minicpm"):
        patch = family["image"][1]["patch_size"]
        n = pixels.shape[-1] // patch
        patches = pixels[0].reshape(3, patch, n, patch).permute(2, 0, 1, 3)
        views, at = [], 0
        for h, w in out["target_sizes"].tolist():
            views.append((h * patch, w * patch, patches[at:at + h * w]))
            at += h * w
        return views
    if name.startswith("gemma4"):
        n = int((out["image_position_ids"][0, :, 0] >= 0).sum())
        w, h = (out["image_position_ids"][0, :n].max(0).values + 1).tolist()
        return [(h * 16, w * 16, pixels[0, :n])]
    if "spatial_shapes" in out:
        patch = family["image"][1]["encoder_patch_size"]
        return [(h * patch, w * patch, pixels[i, :h * w]) for i, (h, w) in enumerate(out["spatial_shapes"].tolist())]
    if name in ("pixtral", "mistral3"):
        h, w = (int(v) for v in out["image_sizes"][0])
        return [(h, w, pixels[0][:, :h, :w])]
    if pixels.ndim == 5:
        pixels = pixels[0]
    return [(view.shape[1], view.shape[2], view) for view in pixels]


def run(name, family, image):
    """Returns views and the prompt, whose runs of soft tokens are written as TOKEN{n}."""
    images, processor = make(family)
    kwargs = {**family.get("call", {}), **family.get("kwargs", {})}
    if "Idefics3Processor" in family["processor"]:
        kwargs["return_row_col_info"] = True
    out = images([image], return_tensors="pt", **kwargs)
    text = family.get("before", "") + processor.replace_image_token(out, 0, **family.get("replace", {}))
    soft = family.get("soft", family["tokens"].get("image_token"))
    text = re.sub(f"(?:{re.escape(soft)})+", lambda m: f"{soft}{{{len(m[0]) // len(soft)}}}", text)
    return flat(name, family, out), text


def files(family):
    """The files of a checkpoint."""
    name, settings = family["image"]
    return {"config": {"model_type": family["model"]}, "image_processor": {"image_processor_type": name, **settings},
            "processor": {"processor_class": family["processor"][1], **family["processor"][2]}, "kwargs": family.get("kwargs", {})}
