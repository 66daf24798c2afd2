#!/usr/bin/env python3
"""Writes tests/golden/seeing/<name>/: tiny random models that see, whole, and what transformers makes of pictures in chats.

  config.json, model.safetensors, tokenizer.json, processor_config.json, ...   the Hugging Face directory, F32
  golden.json   [{"messages": OpenAI's messages with pictures as data URLs, "prompt": ids of the expanded prompt,
                "logprobs": log-probabilities of the next token behind the prompt's last token, "reply": ids of the greedy reply}]
  videos.json   the same of videos, as lists of frames in data URLs, for models that take them

Text behind a video stands behind all its positions, as in the paper of Qwen2-VL and in vLLM; transformers 5.24 counts rows and
columns only there, but continues a reply behind all of them.

Needs torch, torchvision, transformers, tokenizers, safetensors and Pillow. Usage: make_tiny_seeing.py [--videos] [name...]
--videos: videos.json only, of the models that are there.
"""
import base64
import inspect
import io
import json
import math
import os
import pathlib
import shutil
import sys
import textwrap

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import numpy
import torch
import transformers as T
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "seeing"
WORDS = "What is in this picture? How many red circles are there? Compare the two pictures. The first one shows a cat. " * 3


def picture(width, height, seed):
    """A drawn scene: gradients, stripes and tiles of noise."""
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.RandomState(seed).randint(0, 60, (height // 8 + 1, width // 8 + 1, 3))
    noise = noise.repeat(8, 0).repeat(8, 1)[:height, :width]
    planes = [x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), 127 + 120 * numpy.sin((x + seed * y) / 3)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, -1) * 0.8 + noise, 0, 255).astype(numpy.uint8))


def tokenizer_of(template, specials, **more):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>", "<eos>", *specials],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([WORDS], trainer)
    fast = T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", extra_special_tokens=more)
    fast.chat_template = template
    return fast


def chat(image, start="", end="<eos>\n", video=""):
    """A chat template in which a picture is `image`, and a video `video`."""
    if video:
        video = "{% elif c.type == 'video' %}" + video
    return ("{% for m in messages %}" + start + "{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
            "{% for c in m.content %}{% if c.type == 'image' %}" + image + video + "{% else %}{{ c.text }}{% endif %}{% endfor %}"
            "{% endif %}" + end + "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


def sizes(tokenizer, **more):
    return dict(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=2048, pad_token_id=0, bos_token_id=None,
                eos_token_id=1, tie_word_embeddings=False) | more


def vision(**more):
    return dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3) | more


def mrope(**more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1]) | more)


def eye(**more):
    return dict(hidden_size=24, intermediate_size=36, num_heads=3, spatial_merge_size=2, temporal_patch_size=2, patch_size=4,
                out_hidden_size=32) | more


def qwen(kind, **more):
    """Returns (model, processor) of one of Qwen's families."""
    tokenizer = tokenizer_of(chat("<|vision_start|><|image_pad|><|vision_end|>", video="<|vision_start|><|video_pad|><|vision_end|>"),
                             ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"],
                             image_token="<|image_pad|>", video_token="<|video_pad|>", vision_bos_token="<|vision_start|>",
                             vision_eos_token="<|vision_end|>")
    ids = {f"{key}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for key, token in [
        ("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"), ("vision_end", "vision_end")]}
    third = kind in ("Qwen3VL", "Qwen3_5")
    images = T.Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=256, max_pixels=4096)
    name = {"Qwen2VL": "Qwen2VLProcessor", "Qwen2_5_VL": "Qwen2_5_VLProcessor"}.get(kind, "Qwen3VLProcessor")
    video = T.Qwen3VLVideoProcessor if third else T.Qwen2VLVideoProcessor
    area = dict(shortest_edge=1024, longest_edge=6144) if third else dict(shortest_edge=256, longest_edge=1536)
    processor = getattr(T, name)(images, tokenizer, video(patch_size=4, merge_size=2, temporal_patch_size=2, size=area),
                                 chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, **mrope(**(dict(mrope_interleaved=True) if third else {}))) | more.pop("text", {})
    eyes = eye(**more)
    if kind == "Qwen2VL":  # its width of the text is hidden_size
        del eyes["out_hidden_size"], eyes["intermediate_size"]
    config = getattr(T, kind + "Config")(text_config=text, vision_config=eyes, tie_word_embeddings=False, **ids)
    return getattr(T, kind + "ForConditionalGeneration")(config), processor


def smolvlm():
    marks = ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"]
    marks += [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
    tokenizer = tokenizer_of(chat("<image>", video="<video>"), marks, fake_image_token=marks[0], image_token=marks[1],
                             global_image_token=marks[2], end_of_utterance_token=marks[3])
    images = T.SmolVLMImageProcessor(size=dict(longest_edge=48), max_image_size=dict(longest_edge=24), do_image_splitting=True)
    videos = T.SmolVLMVideoProcessor(size=dict(longest_edge=32), max_image_size=dict(longest_edge=24), do_sample_frames=True,
                                     fps=2, num_frames=4)
    processor = T.SmolVLMProcessor(images, tokenizer, videos, image_seq_len=9, chat_template=tokenizer.chat_template)
    config = T.SmolVLMConfig(text_config=T.LlamaConfig(**sizes(tokenizer)), vision_config=vision(image_size=24, patch_size=4),
                             scale_factor=2, image_token_id=tokenizer.convert_tokens_to_ids("<image>"))
    return T.SmolVLMForConditionalGeneration(config), processor


def llava():
    tokenizer = tokenizer_of(chat("<image>\n"), ["<image>"], image_token="<image>")
    images = T.CLIPImageProcessor(size=dict(shortest_edge=20), crop_size=dict(height=20, width=20))
    processor = T.LlavaProcessor(images, tokenizer, patch_size=4, vision_feature_select_strategy="default",
                                 chat_template=tokenizer.chat_template, num_additional_image_tokens=1)
    config = T.LlavaConfig(text_config=T.LlamaConfig(**sizes(tokenizer)),
                           vision_config=T.CLIPVisionConfig(**vision(image_size=20, patch_size=4)), vision_feature_layer=-2,
                           image_token_id=tokenizer.convert_tokens_to_ids("<image>"), image_seq_length=25)
    return T.LlavaForConditionalGeneration(config), processor


def mistral3():
    tokenizer = tokenizer_of(chat("[IMG]"), ["[IMG]", "[IMG_BREAK]", "[IMG_END]"], image_token="[IMG]",
                             image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]")
    images = T.PixtralImageProcessor(size=dict(longest_edge=48), patch_size=4)
    processor = T.PixtralProcessor(images, tokenizer, patch_size=4, spatial_merge_size=2, image_token="[IMG]",
                                   image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]",
                                   chat_template=tokenizer.chat_template)
    config = T.Mistral3Config(text_config=T.MistralConfig(**sizes(tokenizer, sliding_window=None)), spatial_merge_size=2,
                              vision_feature_layer=-1, image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
                              vision_config=T.PixtralVisionConfig(**vision(image_size=48, patch_size=4, hidden_act="silu")))
    return T.Mistral3ForConditionalGeneration(config), processor


def internvl():
    tokenizer = tokenizer_of(chat("<IMG_CONTEXT>\n", video="<video>\n"), ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"], start_image_token="<img>",
                             end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>")
    images = T.GotOcr2ImageProcessor(size=dict(height=24, width=24), crop_to_patches=True, min_patches=1, max_patches=4)
    processor = T.InternVLProcessor(images, tokenizer, T.InternVLVideoProcessor(size=dict(height=24, width=24)), image_seq_length=9,
                                    chat_template=tokenizer.chat_template)
    config = T.InternVLConfig(
        text_config=T.Qwen2Config(**sizes(tokenizer)), downsample_ratio=0.5, image_seq_length=9,
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        vision_config=vision(image_size=[24, 24], patch_size=[4, 4]))
    return T.InternVLForConditionalGeneration(config), processor


def gemma3():
    tokenizer = tokenizer_of(chat("<start_of_image>"), ["<start_of_image>", "<end_of_image>", "<image_soft_token>"],
                             boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>")
    images = T.Gemma3ImageProcessor(size=dict(height=24, width=24))
    processor = T.Gemma3Processor(images, tokenizer, image_seq_length=9, chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2, query_pre_attn_scalar=8)
    config = T.Gemma3Config(text_config=text, vision_config=vision(image_size=24, patch_size=4), mm_tokens_per_image=9, **{
        f"{key}_token_index": tokenizer.convert_tokens_to_ids(token) for key, token in [
            ("boi", "<start_of_image>"), ("eoi", "<end_of_image>"), ("image", "<image_soft_token>")]})
    return T.Gemma3ForConditionalGeneration(config), processor


def gemma4():
    """With inputs of layers (per-layer embeddings), whose pad token stands for pictures, and pictures whose tokens see each other."""
    marks = ["<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>"]
    tokenizer = tokenizer_of(chat("<|image|>"), marks, image_token=marks[1], boi_token=marks[0], eoi_token=marks[2],
                             audio_token=marks[4], boa_token=marks[3], eoa_token=marks[5])
    images = T.Gemma4ImageProcessor(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70)
    processor = T.Gemma4Processor(T.Gemma4AudioFeatureExtractor(), images, tokenizer, T.Gemma4VideoProcessor(),
                                  image_seq_length=70, chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=6,
                 vocab_size_per_layer_input=len(tokenizer), num_kv_shared_layers=0, use_bidirectional_attention="vision",
                 enable_moe_block=False, use_double_wide_mlp=False, global_head_dim=16)
    ids = {f"{key}_token_id": tokenizer.convert_tokens_to_ids(token) for key, token in [
        ("image", marks[1]), ("boi", marks[0]), ("eoi", marks[2]), ("audio", marks[4]), ("boa", marks[3]), ("eoa", marks[5]),
        ("video", marks[6])]}
    config = T.Gemma4Config(text_config=T.Gemma4TextConfig(**text), audio_config=None, vision_config=vision(
        num_key_value_heads=3, head_dim=8, patch_size=4, pooling_kernel_size=3, position_embedding_size=40), **ids)
    return T.Gemma4ForConditionalGeneration(config), processor


def llama4():
    marks = ["<|image|>", "<|image_start|>", "<|image_end|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>"]
    tokenizer = tokenizer_of(chat("<|image|>"), marks)
    images = T.Llama4ImageProcessor(size=dict(height=16, width=16), max_patches=4)
    processor = T.Llama4Processor(images, tokenizer, patch_size=4, chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, intermediate_size_mlp=48, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2,
                 attention_chunk_size=512, no_rope_layers=[1, 1, 1, 0], use_qk_norm=True)
    config = T.Llama4Config(
        text_config=T.Llama4TextConfig(**text), image_token_index=tokenizer.convert_tokens_to_ids("<|patch|>"),
        boi_token_index=tokenizer.convert_tokens_to_ids("<|image_start|>"), eoi_token_index=tokenizer.convert_tokens_to_ids("<|image_end|>"),
        vision_config=T.Llama4VisionConfig(**vision(
            image_size=16, patch_size=4, num_attention_heads=2, pixel_shuffle_ratio=0.5, projector_input_dim=28,
            projector_output_dim=28, vision_output_dim=28, intermediate_size=96)))
    from transformers.models.llama4 import modeling_llama4
    modeling_llama4.MoeCausalLMOutputWithPast.image_outputs = None  # which 5.24 forgets
    return T.Llama4ForConditionalGeneration(config), processor


def pixtral():
    tokenizer = tokenizer_of(chat("[IMG]"), ["[IMG]", "[IMG_BREAK]", "[IMG_END]"], image_token="[IMG]",
                             image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]")
    images = T.PixtralImageProcessor(size=dict(longest_edge=24), patch_size=4)
    processor = T.PixtralProcessor(images, tokenizer, patch_size=4, image_token="[IMG]", image_break_token="[IMG_BREAK]",
                                   image_end_token="[IMG_END]", chat_template=tokenizer.chat_template)
    config = T.LlavaConfig(text_config=T.MistralConfig(**sizes(tokenizer, sliding_window=None)),
                           vision_config=T.PixtralVisionConfig(**vision(image_size=24, patch_size=4)), vision_feature_layer=-1,
                           vision_feature_select_strategy="full", image_token_id=tokenizer.convert_tokens_to_ids("[IMG]"))
    return T.LlavaForConditionalGeneration(config), processor


def llava_next():
    tokenizer = tokenizer_of(chat("<image>\n"), ["<image>"], image_token="<image>")
    pinpoints = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]
    images = T.LlavaNextImageProcessor(size=dict(shortest_edge=16), crop_size=dict(height=16, width=16),
                                       image_grid_pinpoints=pinpoints)
    processor = T.LlavaNextProcessor(images, tokenizer, patch_size=4, vision_feature_select_strategy="default",
                                     chat_template=tokenizer.chat_template, num_additional_image_tokens=1)
    config = T.LlavaNextConfig(text_config=T.LlamaConfig(**sizes(tokenizer)), vision_feature_layer=-2,
                               vision_config=T.CLIPVisionConfig(**vision(image_size=16, patch_size=4)),
                               image_grid_pinpoints=pinpoints, image_token_id=tokenizer.convert_tokens_to_ids("<image>"))
    return T.LlavaNextForConditionalGeneration(config), processor


def llava_onevision():
    tokenizer = tokenizer_of(chat("<image>\n", video="<video>\n"), ["<image>", "<video>"], image_token="<image>", video_token="<video>")
    pinpoints = [[16 * rows, 16 * columns] for rows in (1, 2, 3) for columns in (1, 2, 3)]
    images = T.LlavaOnevisionImageProcessor(size=dict(height=16, width=16), image_grid_pinpoints=pinpoints)
    processor = T.LlavaOnevisionProcessor(images, tokenizer, T.LlavaOnevisionVideoProcessor(size=dict(height=16, width=16)), num_image_tokens=16,
                                          vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2",
                                          chat_template=tokenizer.chat_template)
    config = T.LlavaOnevisionConfig(
        text_config=T.Qwen2Config(**sizes(tokenizer)), vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)),
        image_grid_pinpoints=pinpoints, vision_aspect_ratio="anyres_max_2", vision_feature_layer=-1,
        vision_feature_select_strategy="full", image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"))
    return T.LlavaOnevisionForConditionalGeneration(config), processor


def aya():
    marks = ["<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", "TILE", "TILE_GLOBAL"]
    tokenizer = tokenizer_of(chat("<image>"), marks)
    images = T.GotOcr2ImageProcessor(size=dict(height=16, width=16), crop_to_patches=True, min_patches=1, max_patches=4)
    processor = T.AyaVisionProcessor(images, tokenizer, patch_size=8, img_size=16, downsample_factor=1,
                                     chat_template=tokenizer.chat_template)
    config = T.AyaVisionConfig(
        text_config=T.Cohere2Config(logit_scale=1.0, **sizes(tokenizer, sliding_window=16, layer_types=["sliding_attention", "full_attention"] * 2)),
        vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)), vision_feature_layer=-1,
        alignment_intermediate_size=24, image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"))
    return T.AyaVisionForConditionalGeneration(config), processor


def cohere2():
    marks = ["<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"]
    tokenizer = tokenizer_of(chat("<|IMG_PATCH|>"), marks, image_token=marks[2], boi_token=marks[0], eoi_token=marks[1],
                             img_line_break_token=marks[3])
    images = T.Cohere2VisionImageProcessor(size=dict(height=16, width=16), crop_to_patches=True, min_patches=1, max_patches=4,
                                           patch_size=2)
    processor = T.Cohere2VisionProcessor(images, tokenizer, chat_template=tokenizer.chat_template)
    config = T.Cohere2VisionConfig(
        text_config=T.Cohere2Config(logit_scale=1.0, **sizes(tokenizer, sliding_window=16, layer_types=["sliding_attention", "full_attention"] * 2)),
        vision_config=T.SiglipVisionConfig(**vision(image_size=16, patch_size=4)), alignment_intermediate_size=24,
        image_token_id=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"))
    return T.Cohere2VisionForConditionalGeneration(config), processor


def lfm2():
    marks = ["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"]
    marks += [f"<|img_row_{r}_col_{c}|>" for r in range(1, 5) for c in range(1, 5)]
    tokenizer = tokenizer_of(chat("<image>"), marks, image_token=marks[0], image_start_token=marks[1], image_end_token=marks[2],
                             image_thumbnail=marks[3])
    images = T.Lfm2VlImageProcessor(tile_size=32, encoder_patch_size=4, downsample_factor=2, min_tiles=2, max_tiles=4,
                                    min_image_tokens=4, max_image_tokens=16, do_convert_rgb=True, max_pixels_tolerance=2.0,
                                    max_num_patches=64)
    processor = T.Lfm2VlProcessor(images, tokenizer, chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, layer_types=["conv", "full_attention"] * 2, block_auto_adjust_ff_dim=False)
    config = T.Lfm2VlConfig(
        text_config=T.Lfm2Config(**text), projector_hidden_size=28, image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        vision_config=T.Siglip2VisionConfig(**vision(num_patches=64, patch_size=4, vision_use_head=False)))
    return T.Lfm2VlForConditionalGeneration(config), processor


def glm4v():
    marks = ["<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|video|>", "<|begin_of_video|>", "<|end_of_video|>"]
    template = chat("<|begin_of_image|><|image|><|end_of_image|>", video="<|begin_of_video|><|video|><|end_of_video|>")
    tokenizer = tokenizer_of(template, marks, image_token=marks[1], video_token=marks[3])
    images = T.Glm4vImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2,
                                   size=dict(shortest_edge=512, longest_edge=8192))
    videos = T.Glm4vVideoProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, size=dict(shortest_edge=512, longest_edge=6144))
    processor = T.Glm4vProcessor(images, tokenizer, videos, chat_template=tokenizer.chat_template)
    text = sizes(tokenizer, num_attention_heads=2, num_key_value_heads=1, head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2]))
    config = T.Glm4vConfig(
        text_config=text, vision_config=dict(depth=2, hidden_size=24, num_heads=3, image_size=16, patch_size=4, out_hidden_size=32,
                                             intermediate_size=28),
        **{f"{key}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for key, token in [
            ("image", "image"), ("video", "video"), ("image_start", "begin_of_image"), ("image_end", "end_of_image"),
            ("video_start", "begin_of_video"), ("video_end", "end_of_video")]})
    return T.Glm4vForConditionalGeneration(config), processor


MODELS = {
    "qwen2_vl": lambda: qwen("Qwen2VL", depth=2, embed_dim=24, mlp_ratio=2, hidden_size=32),
    "qwen2_5_vl": lambda: qwen("Qwen2_5_VL", depth=3, window_size=16, fullatt_block_indexes=[1]),
    "qwen3_vl": lambda: qwen("Qwen3VL", depth=3, num_position_embeddings=25, deepstack_visual_indexes=[0, 2]),
    "qwen3_5": lambda: qwen("Qwen3_5", depth=2, num_position_embeddings=16, text=dict(
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, head_dim=16,
        layer_types=["linear_attention", "full_attention"] * 2, rope_parameters=dict(
            rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True))),
    "smolvlm": smolvlm,
    "llava": llava,
    "mistral3": mistral3,
    "internvl": internvl,
    "gemma3": gemma3,
    "gemma4": gemma4,
    "llama4": llama4,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "pixtral": pixtral,
    "aya": aya,
    "cohere2_vision": cohere2,
    "lfm2_vl": lfm2,
    "glm4v": glm4v,
}


def shake(model):
    """Draws every parameter; norms and biases are not left at their initial values."""
    for name, parameter in model.named_parameters():
        data = parameter.data
        if data.ndim <= 1:
            one = 1 if "norm" in name.lower() and not name.endswith("bias") and "gemma" not in type(model).__name__.lower() else 0
            if name.endswith(("A_log", "dt_bias")):
                continue
            data.copy_(one + 0.3 * torch.randn_like(data))
        else:
            data.copy_(torch.randn_like(data) * (1.2 / math.sqrt(data[0].numel())))


def data_url(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def talks():
    """Conversations: parts are texts or pictures."""
    a, b, c = picture(37, 52, 1), picture(90, 40, 2), picture(24, 24, 3)
    yield [("user", [a, "What is in this picture?"])]
    yield [("user", ["Compare the two pictures. ", b, " and ", c, " How many red circles are there?"])]
    yield [("user", [c, "What is this?"]), ("assistant", ["The first one shows a cat."]), ("user", ["How many?", a, b])]


def jpeg(image):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()


def moving(width, height, n, seed):
    """The frames of a video, as JPEG files."""
    return [jpeg(picture(width, height, seed + 3 * i)) for i in range(n)]


def watched_talks():
    """Conversations with videos: parts are texts, pictures, or (frames, their rate or None)."""
    yield [("user", [(moving(40, 30, 5, 1), None), "What is in this picture?"])]
    yield [("user", ["Compare: ", (moving(30, 44, 12, 2), 4.0), " How many red circles are there?"])]
    yield [("user", [picture(37, 52, 1), (moving(48, 20, 8, 5), 2.0), "What is this?"]), ("assistant", ["The first one shows a cat."]),
           ("user", [(moving(24, 24, 8, 9), 8.0), picture(24, 24, 3), "How many?"])]


VIDEO_MODELS = ["smolvlm", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "internvl", "llava_onevision"]


def mend_positions(model):
    """Lets text follow all positions of a video."""
    inner = type(model.model)
    if not hasattr(inner, "get_rope_index"):
        return
    source = textwrap.dedent(inspect.getsource(inner.get_rope_index))
    line = "current_pos += max(grid_thw[1], grid_thw[2]) // spatial_merge_size"
    assert line in source
    scope = dict(vars(sys.modules[inner.__module__]))
    exec(source.replace(line, "current_pos = int(llm_pos_ids_list[-1].max()) + 1"), scope)
    inner.get_rope_index = scope["get_rope_index"]


def video_part(files, rate):
    url = "data:video/jpeg;base64," + ",".join(base64.b64encode(frame).decode() for frame in files)
    return {"type": "video_url", "video_url": {"url": url}} | ({"fps": rate} if rate else {})


def frames_of(files):
    return numpy.stack([numpy.array(Image.open(io.BytesIO(frame)).convert("RGB")) for frame in files])


def inputs_of(processor, talk):
    """What the processor makes of a conversation with videos. A video without a rate is read whole, as in vLLM."""
    parts = [part for _, several in talk for part in several]
    videos = [part for part in parts if isinstance(part, tuple)]
    images = [part for part in parts if isinstance(part, Image.Image)]
    def plain(part):
        return {"type": "video"} if isinstance(part, tuple) else {"type": "image"} if isinstance(part, Image.Image) else {
            "type": "text", "text": part}
    text = processor.apply_chat_template([{"role": role, "content": [plain(part) for part in parts]} for role, parts in talk],
                                         tokenize=False, add_generation_prompt=True, chat_template=processor.chat_template)
    frames = [frames_of(files) for files, _ in videos]
    more = {}
    if all(rate is not None for _, rate in videos):
        more["video_metadata"] = [dict(total_num_frames=len(files), fps=rate, duration=len(files) / rate) for files, rate in videos]
        if not processor.video_processor.do_sample_frames:
            for one in more["video_metadata"]:
                one["frames_indices"] = list(range(one["total_num_frames"]))
    else:
        more["do_sample_frames"] = False
    return processor(text=[text], images=[images] if images else None, videos=frames, return_tensors="pt", **more)


def write_videos(name):
    where = OUT / name
    processor = T.AutoProcessor.from_pretrained(where)
    model = T.AutoModelForImageTextToText.from_pretrained(where, dtype=torch.float32).eval()
    mend_positions(model)
    golden = []
    for talk in watched_talks():
        if name in ("glm4v", "smolvlm"):  # the reference takes no pictures and videos together: they have one soft token
            talk = [(role, [part for part in parts if not isinstance(part, Image.Image)]) for role, parts in talk]
        if name == "smolvlm":  # it fills videos of a request up to the longest one
            talk = [(role, [part for part in parts if isinstance(part, str) or n == 0]) for n, (role, parts) in enumerate(talk)]
        inputs = inputs_of(processor, talk)
        with torch.no_grad():
            logits = model(**inputs).logits[0, -1].float()
            made = model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
        def part_of(part):
            if isinstance(part, str):
                return {"type": "text", "text": part}
            if isinstance(part, Image.Image):
                return {"type": "image_url", "image_url": {"url": data_url(part)}}
            return video_part(*part)
        prompt = inputs["input_ids"][0].tolist()
        golden.append({"messages": [{"role": role, "content": [part_of(part) for part in parts]} for role, parts in talk],
                       "prompt": prompt, "logprobs": [round(x, 5) for x in torch.log_softmax(logits, -1).tolist()],
                       "reply": made[0, len(prompt):].tolist()})
        print(name, "videos", len(prompt), inputs.get("video_grid_thw", torch.tensor([])).tolist(), golden[-1]["reply"],
              processor.tokenizer.decode(prompt).replace("<|video_pad|>", "").replace("<|image|>", "").replace("<IMG_CONTEXT>", "")[:300])
    (where / "videos.json").write_text(json.dumps(golden) + "\n")


def write(name):
    torch.manual_seed(sum(name.encode()))
    model, processor = MODELS[name]()
    model = model.float().eval()
    shake(model)
    where = OUT / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    model.save_pretrained(where)
    processor.save_pretrained(where)
    (where / "generation_config.json").unlink(missing_ok=True)
    golden = []
    for talk in talks():
        def messages(of_image):
            return [{"role": role, "content": [of_image(part) if isinstance(part, Image.Image) else {"type": "text", "text": part}
                                               for part in parts]} for role, parts in talk]
        inputs = processor.apply_chat_template(messages(lambda image: {"type": "image", "image": image}), tokenize=True,
                                               add_generation_prompt=True, return_dict=True, return_tensors="pt")
        for key, value in inputs.items():  # Llama 4's pixels are BF16 numbers
            if torch.is_tensor(value) and value.is_floating_point():
                inputs[key] = value.float()
        with torch.no_grad():
            logits = model(**inputs).logits[0, -1].float()
            made = model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
        prompt = inputs["input_ids"][0].tolist()
        golden.append({"messages": messages(lambda image: {"type": "image_url", "image_url": {"url": data_url(image)}}),
                       "prompt": prompt, "logprobs": [round(x, 5) for x in torch.log_softmax(logits, -1).tolist()],
                       "reply": made[0, len(prompt):].tolist()})
        print(name, len(prompt), golden[-1]["reply"])
    (where / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, sum(path.stat().st_size for path in where.iterdir()) // 1024, "KiB")


if __name__ == "__main__":
    asked = [name for name in sys.argv[1:] if name != "--videos"]
    for wanted in asked or MODELS:
        if "--videos" not in sys.argv:
            write(wanted)
        if wanted in VIDEO_MODELS:
            write_videos(wanted)
