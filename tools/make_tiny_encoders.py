#!/usr/bin/env python3
"""Writes tests/golden/encoders/<name>/: tiny random encoders and what transformers computes.

  config.json, model.safetensors   the Hugging Face directory, F32
  model.gguf                       by llama.cpp's own converter, where it has the same thing
  golden.json                      sequences of ids and their pooled states {ids, mean, cls, last}

tests/golden/classifiers/<name>/: models with a head, ids and their logits and probabilities {ids, logits, probs};

tests/golden/cross_encoders/<name>/: the same with a tokenizer, and what sentence-transformers' CrossEncoder makes of pairs
{first, second, score};

and tests/golden/sentences/<name>/: the same with a tokenizer and modules, and what sentence-transformers makes of texts
{text, prompt_name, embedding}.

Needs torch, transformers, sentence-transformers, tokenizers, safetensors, numpy, and LLAMA_CPP, a checkout of llama.cpp.
Usage: make_tiny_encoders.py [name, sentences/name or classifiers/name...]
"""
import json
import os
import shutil
import sys
import tempfile

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import make_tiny_models
import tiny_newer_models
import tiny_remote_encoders
import tiny_remote_models
import torch
import transformers as T
from safetensors.torch import load_file, save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "encoders")
LENGTHS = (1, 2, 7, 23, 40)
# Lengths of further sequences, for models whose scores depend on long distances.
LONG = {"mpnet": (140,)}


def bert(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
                max_position_embeddings=48, pad_token_id=0) | more


def deberta(**more):
    return bert(type_vocab_size=0, relative_attention=True, share_att_key=True, pos_att_type="p2c|c2p", position_buckets=8,
                max_relative_positions=24, norm_rel_ebd="layer_norm", position_biased_input=False) | more


def modern(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=3,
                max_position_embeddings=64, local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                sep_token_id=2) | more


def gemma(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=12, query_pre_attn_scalar=8,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"], bos_token_id=0, eos_token_id=1,
                pad_token_id=1, use_bidirectional_attention=True,
                rope_parameters={"sliding_attention": make_tiny_models.rope(), "full_attention": make_tiny_models.rope(1e6)}) | more


def sees_all(config):
    """A decoder whose tokens see the whole text."""
    config.is_causal = False
    return config


# name: (config, whether llama.cpp has the same thing, the class of the whole model where it is saved with a head)
MODELS = {
    "bert": lambda: (T.BertConfig(**bert()), True, None),
    "bert_with_head": lambda: (T.BertConfig(**bert(num_hidden_layers=1, num_attention_heads=2, type_vocab_size=1,
                                                   hidden_act="gelu_new")), False, T.BertForMaskedLM),
    "roberta": lambda: (T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), True, None),
    "xlm_roberta": lambda: (T.XLMRobertaConfig(**bert(pad_token_id=5, max_position_embeddings=54)), False,
                            T.XLMRobertaForMaskedLM),
    "modernbert": lambda: (T.ModernBertConfig(**modern()), True, None),
    "modernbert_biases": lambda: (T.ModernBertConfig(**modern(
        num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], local_attention=11,
        norm_bias=True, attention_bias=True, mlp_bias=True)), False, T.ModernBertForMaskedLM),
    "longformer": lambda: (T.LongformerConfig(**bert(pad_token_id=1, attention_window=[8, 4])), False, None),
    "longformer_with_head": lambda: (T.LongformerConfig(**bert(
        pad_token_id=3, attention_window=6, num_hidden_layers=3, type_vocab_size=1, max_position_embeddings=52)), False, T.LongformerForMaskedLM),
    "distilbert": lambda: (T.DistilBertConfig(vocab_size=53, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=48), True, None),
    "distilbert_with_head": lambda: (T.DistilBertConfig(vocab_size=53, dim=24, hidden_dim=40, n_layers=1, n_heads=2,
                                                        max_position_embeddings=48, activation="relu"), False, T.DistilBertForMaskedLM),
    "electra": lambda: (T.ElectraConfig(**bert(embedding_size=24)), False, T.ElectraForMaskedLM),
    "electra_narrow": lambda: (T.ElectraConfig(**bert(embedding_size=10)), False, T.ElectraForPreTraining),
    "albert": lambda: (T.AlbertConfig(**bert(embedding_size=16, num_hidden_layers=3)), False, None),
    "albert_wide": lambda: (T.AlbertConfig(**bert(embedding_size=24, hidden_act="gelu", layer_norm_eps=1e-5)), False, T.AlbertForMaskedLM),
    "mpnet": lambda: (T.MPNetConfig(**bert(max_position_embeddings=150, pad_token_id=1)), False, None),
    "mpnet_with_head": lambda: (T.MPNetConfig(**bert(num_hidden_layers=1, num_attention_heads=2, pad_token_id=1)), False, T.MPNetForMaskedLM),
    "deberta_v2": lambda: (T.DebertaV2Config(**deberta()), False, None),
    "deberta_v2_plain": lambda: (T.DebertaV2Config(**deberta(
        num_hidden_layers=1, position_buckets=-1, max_relative_positions=12, norm_rel_ebd="none", pos_att_type="c2p",
        type_vocab_size=2)), False, T.DebertaV2ForMaskedLM),
    "jina_v3": lambda: (T.JinaEmbeddingsV3Config(**bert(max_position_embeddings=64, type_vocab_size=1)), False, None),
    "gte": lambda: (T.GteConfig(**bert(max_position_embeddings=64, type_vocab_size=1)), False, None),
    "gte_plain": lambda: (T.GteConfig(**bert(
        max_position_embeddings=64, type_vocab_size=0, rope_parameters=make_tiny_models.rope(2e4))), False, T.GteForMaskedLM),
    "eurobert": lambda: (T.EuroBertConfig(**bert(max_position_embeddings=64, num_key_value_heads=1)), False, None),
    "nomic_bert": lambda: (T.NomicBertConfig(**bert(max_position_embeddings=64)), True, None),
    "embedding_gemma": lambda: (T.Gemma3TextConfig(**gemma(num_hidden_layers=6, layer_types=None)), True, None),
    "embedding_gemma_odd": lambda: (T.Gemma3TextConfig(**gemma(sliding_window=9, num_key_value_heads=1)), False, None),
    "qwen2_sees_all": lambda: (sees_all(T.Qwen2Config(**decoder())), False, T.Qwen2ForCausalLM),
    "mistral_sees_all": lambda: (sees_all(T.MistralConfig(**decoder(sliding_window=6))), False, None),
    "ministral3_sees_all": lambda: (sees_all(T.Ministral3Config(**decoder(sliding_window=None, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.3)))), False, None),
}


def sequences(vocab, more=()):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in (*LENGTHS, *more)]


def pooled(model, ids):
    with torch.no_grad():
        states = model(torch.tensor([ids])).last_hidden_state[0]
    return dict(ids=ids, mean=states.mean(0).tolist(), cls=states[0].tolist(), last=states[-1].tolist())


# Encoders that transformers does not have; see tiny_remote_encoders.py.
DESCRIBED = tiny_remote_encoders.DESCRIBED | {
    "nomic_bert_moe": (tiny_remote_models.NOMIC_MOE, tiny_remote_models.nomic_moe_shapes, tiny_remote_models.nomic_moe)}


def make_described(name):
    config, shapes, states_of = DESCRIBED[name]
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    model = torch.nn.Module()
    state = {key: torch.nn.Parameter(torch.zeros(shape)) for key, shape in shapes(config).items()}
    model.named_parameters = lambda: state.items()
    make_tiny_models.randomize(model, name)
    state = {key: value.data.zero_() if key.endswith("experts.bias") else value.data for key, value in state.items()}
    golden = []
    for ids in sequences(config["vocab_size"], LONG.get(name, ())):
        states = states_of(state, config, ids)
        golden.append(dict(ids=ids, mean=states.mean(0).tolist(), cls=states[0].tolist(), last=states[-1].tolist()))
    save_file(state, os.path.join(path, "model.safetensors"), {"format": "pt"})
    json.dump(config, open(os.path.join(path, "config.json"), "w"), indent=2)
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    tiny_newer_models.convert(path, os.path.join(path, "model.gguf"))
    print(f"{name:20} states up to {max(abs(x) for g in golden for x in g['mean']):.2f}")


def make(name):
    config, converts, whole_class = MODELS[name]()
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    torch.manual_seed(1)
    whole = whole_class(config) if whole_class else T.AutoModel.from_config(config)
    whole = whole.float().eval()
    make_tiny_models.randomize(whole, "gemma3" if name.startswith("embedding_gemma") else name)
    encoder = getattr(whole, whole.base_model_prefix) if whole_class else whole
    golden = [pooled(encoder, ids) for ids in sequences(config.vocab_size, LONG.get(name, ()))]
    whole.save_pretrained(path)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    if converts:
        tiny_newer_models.convert(path, os.path.join(path, "model.gguf"))
    print(f"{name:20} dim {len(golden[0]['mean'])}, states up to {max(abs(x) for g in golden for x in g['mean']):.2f}")


def decoder(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2) | more


# name: (config, class, what makes probabilities, whether llama.cpp has the same thing; it leaves BERT's pooler out)
CLASSIFIERS = {
    "bert": lambda: (T.BertConfig(**bert(num_labels=3)), T.BertForSequenceClassification, "softmax", False),
    "bert_one": lambda: (T.BertConfig(**bert(num_labels=1)), T.BertForSequenceClassification, "sigmoid", False),
    "bert_many": lambda: (T.BertConfig(**bert(num_labels=5, problem_type="multi_label_classification")),
                          T.BertForSequenceClassification, "sigmoid", False),
    "roberta": lambda: (T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=2)),
                        T.RobertaForSequenceClassification, "softmax", True),
    "xlm_roberta": lambda: (T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=1)),
                            T.XLMRobertaForSequenceClassification, "sigmoid", False),
    "modernbert": lambda: (T.ModernBertConfig(**modern(num_labels=4)), T.ModernBertForSequenceClassification, "softmax", True),
    "modernbert_mean": lambda: (T.ModernBertConfig(**modern(num_labels=1, classifier_pooling="mean", classifier_bias=True,
                                                            norm_bias=True, problem_type="regression")),
                                T.ModernBertForSequenceClassification, "none", False),
    "distilbert": lambda: (T.DistilBertConfig(vocab_size=53, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=48,
                                              num_labels=2), T.DistilBertForSequenceClassification, "softmax", False),
    "electra": lambda: (T.ElectraConfig(**bert(embedding_size=24, num_labels=1)), T.ElectraForSequenceClassification, "sigmoid", False),
    "mpnet": lambda: (T.MPNetConfig(**bert(pad_token_id=1, num_labels=2)), T.MPNetForSequenceClassification, "softmax", False),
    "deberta_v2": lambda: (T.DebertaV2Config(**deberta(num_labels=3)), T.DebertaV2ForSequenceClassification, "softmax", False),
    "jina_v3": lambda: (T.JinaEmbeddingsV3Config(**bert(max_position_embeddings=64, type_vocab_size=1, num_labels=1)),
                        T.JinaEmbeddingsV3ForSequenceClassification, "sigmoid", False),
    "gte": lambda: (T.GteConfig(**bert(max_position_embeddings=64, type_vocab_size=1, num_labels=3)), T.GteForSequenceClassification,
                    "softmax", False),
    "qwen3": lambda: (T.Qwen3Config(**decoder(num_labels=3, tie_word_embeddings=True)), T.Qwen3ForSequenceClassification,
                      "softmax", False),
    "llama": lambda: (T.LlamaConfig(**decoder(num_labels=1)), T.LlamaForSequenceClassification, "sigmoid", False),
}


def classified(model, ids, activation):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    probs = {"softmax": lambda: logits.softmax(-1), "sigmoid": logits.sigmoid, "none": lambda: logits}[activation]()
    return dict(ids=ids, logits=logits.tolist(), probs=probs.tolist())


def make_classifier(name):
    config, whole_class, activation, converts = CLASSIFIERS[name]()
    path = os.path.join(OUT, "..", "classifiers", name)
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(3)
    model = whole_class(config).float().eval()
    make_tiny_models.randomize(model, name)
    model.save_pretrained(path)
    # Without the ids of padding, which transformers looks for at the end of what decoders read.
    ids = [[token % 50 + 3 for token in one] for one in sequences(config.vocab_size - 3)]
    golden = [classified(model, one, activation) for one in ids]
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    if converts:
        tiny_newer_models.convert(path, os.path.join(path, "model.gguf"))
    print(f"{name:20} {len(golden[0]['logits'])} classes, logits up to {max(abs(x) for g in golden for x in g['logits']):.2f}")


WORDS = "the cat sat on a mat and dog ##s ran off with it , . ! find : text un ##like ##ly caf ##e 1 2 3".split()
TEXTS = ["The cat sat on a mat.", "Dogs ran off, unlikely!", "", "caf\u00e9 123 \u4e2d zebra", "the " * 60]


def tokenizer(path, pair="[CLS] $A [SEP] $B:1 [SEP]:1", kind=T.BertTokenizerFast):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    vocab = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    kind(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
         mask_token="[MASK]").save_pretrained(path)
    return len(vocab)


# name: (pooling mode, (out_features, activation, bias) of a dense layer or nothing, whether it normalises, the default prompt)
SENTENCES = {
    "mean_normalized": ("mean", [], True, None),
    "cls_with_prompts": ("cls", [], True, "query"),
    "dense": ("mean", [(30, torch.nn.Identity(), False), (10, torch.nn.Tanh(), True)], True, None),
    "max": ("max", [], False, None),
}


def make_sentences(name):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    pooling, dense, normalizes, default_prompt = SENTENCES[name]
    path = os.path.join(OUT, "..", "sentences", name)
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(2)
    inner = os.path.join(path, "inner")
    size = tokenizer(inner)
    encoder = T.BertModel(T.BertConfig(**bert(vocab_size=size))).float().eval()
    make_tiny_models.randomize(encoder, "bert")
    encoder.save_pretrained(inner)
    modules = [Transformer(inner, max_seq_length=32), Pooling(24, pooling_mode=pooling)]
    width = 24
    for out, activation, bias in dense:
        modules.append(Dense(width, out, bias=bias, activation_function=activation))
        width = out
    if normalizes:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "find: ", "document": "text: "},
                                  default_prompt_name=default_prompt)
    model.save(path)
    shutil.rmtree(inner)
    os.remove(os.path.join(path, "README.md"))
    golden = []
    for prompt in (None, "document") if default_prompt is None else (None, "document", "query"):
        rows = model.encode(TEXTS, prompt_name=prompt)
        golden += [dict(text=text, prompt_name=prompt, embedding=row.tolist()) for text, row in zip(TEXTS, rows)]
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    print(f"{name:20} dim {len(golden[0]['embedding'])}")


PAIRS = [("the cat", "sat on a mat."), ("find: dog", "Dogs ran off, unlikely!"), ("", "caf\u00e9 1 2 3"), ("the " * 30, "cat " * 40),
         ("the cat " * 12, "dog")]
# name: (what stands around two texts, config, class)
CROSS_ENCODERS = {
    "bert": ("[CLS] $A [SEP] $B:1 [SEP]:1", lambda size: T.BertConfig(**bert(vocab_size=size, num_labels=1)),
             T.BertForSequenceClassification),
    "roberta": ("[CLS] $A [SEP] [SEP] $B [SEP]", lambda size: T.XLMRobertaConfig(**bert(
        vocab_size=size, pad_token_id=0, type_vocab_size=1, num_labels=1)), T.XLMRobertaForSequenceClassification),
    "modernbert": ("[CLS] $A [SEP] $B [SEP]", lambda size: T.ModernBertConfig(**modern(
        vocab_size=size, max_position_embeddings=40, num_labels=1)), T.ModernBertForSequenceClassification),
}


def make_cross_encoder(name):
    from sentence_transformers import CrossEncoder
    pair, config, whole_class = CROSS_ENCODERS[name]
    path = os.path.join(OUT, "..", "cross_encoders", name)
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(4)
    size = tokenizer(path, pair, T.PreTrainedTokenizerFast)
    model = whole_class(config(size)).float().eval()
    make_tiny_models.randomize(model, name)
    model.save_pretrained(path)
    limit = 40
    told = json.load(open(os.path.join(path, "tokenizer_config.json")))
    told["model_max_length"] = limit
    types = ["token_type_ids"] if ":1" in pair else []
    told["model_input_names"] = ["input_ids", *types, "attention_mask"]
    json.dump(told, open(os.path.join(path, "tokenizer_config.json"), "w"))
    scores = CrossEncoder(path, device="cpu", max_length=limit).predict(PAIRS, batch_size=1)
    golden = [dict(first=a, second=b, score=float(score)) for (a, b), score in zip(PAIRS, scores)]
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    print(f"{name:20} scores {[round(one['score'], 3) for one in golden]}")


def make_piece_cross_encoder(name):
    """As Microsoft publishes DeBERTa v3: spm.model is all that describes the vocabulary. Ids are sentencepiece's, which this needs;
    pairs are cut as transformers does ("longest first")."""
    import sentencepiece
    path = os.path.join(OUT, "..", "cross_encoders", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    text = os.path.join(path, "text")
    open(text, "w").write("\n".join([*TEXTS, *(one for pair in PAIRS for one in pair), " ".join(WORDS)]))
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=os.path.join(path, "spm"), vocab_size=60, hard_vocab_limit=False, model_type="unigram",
        normalization_rule_name="identity", pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]", minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(path, "spm.model"))
    os.remove(text), os.remove(os.path.join(path, "spm.vocab"))
    size, limit = pieces.vocab_size() + 1, 40
    json.dump({"[MASK]": size - 1}, open(os.path.join(path, "added_tokens.json"), "w"))
    json.dump(dict(do_lower_case=False, vocab_type="spm", model_max_length=limit, model_input_names=["input_ids", "attention_mask"]),
              open(os.path.join(path, "tokenizer_config.json"), "w"))
    torch.manual_seed(4)
    model = T.DebertaV2ForSequenceClassification(T.DebertaV2Config(**deberta(vocab_size=size, num_labels=1))).float().eval()
    make_tiny_models.randomize(model, name)
    model.save_pretrained(path)
    golden = []
    for a, b in PAIRS:
        ids = [pieces.encode(a), pieces.encode(b)]
        room, longer = limit - 3, int(len(ids[0]) <= len(ids[1]))
        if len(ids[0]) + len(ids[1]) > room:
            least = min(len(ids[1 - longer]), room // 2)
            ids[longer], ids[1 - longer] = ids[longer][:room - least], ids[1 - longer][:least]
        with torch.no_grad():
            score = model(torch.tensor([[1, *ids[0], 2, *ids[1], 2]])).logits[0, 0].sigmoid()
        golden.append(dict(first=a, second=b, score=float(score)))
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    print(f"{name:20} {size} tokens, scores {[round(one['score'], 3) for one in golden]}")


def make_reranker(name):
    """As llama.cpp's converter writes Qwen3-Reranker: the GGUF file alone, which has the rows of "yes" and "no" and how pairs are
    written. The scores are those of the whole model in transformers, for texts written so."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    path = os.path.join(OUT, "..", "cross_encoders", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    torch.manual_seed(5)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("y", "e"), ("ye", "s"), ("n", "o"), ("t", "h"), ("th", "e")]
    vocab = {piece: i for i, piece in enumerate([*letters, *(a + b for a, b in merges)])}
    made = Tokenizer(models.BPE(vocab, merges))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    size = made.get_vocab_size()
    config = T.Qwen3Config(vocab_size=size, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=2, head_dim=8, max_position_embeddings=512, tie_word_embeddings=name.endswith("tied"),
                           bos_token_id=None, eos_token_id=made.token_to_id("<|im_end|>"))
    model = T.Qwen3ForCausalLM(config).float().eval()
    make_tiny_models.randomize(model, name)
    with tempfile.TemporaryDirectory() as folder:
        T.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>").save_pretrained(folder)
        model.save_pretrained(folder)
        open(folder + "/README.md", "w").write("# Qwen3-Reranker\n")  # by which the converter knows it
        tiny_newer_models.convert(folder, os.path.join(path, "model.gguf"), bpe="qwen2")
    fields = gguf.GGUFReader(os.path.join(path, "model.gguf")).fields
    form = fields["tokenizer.chat_template.rerank"].contents()
    golden = []
    for first, second in [*PAIRS[:3], ("the {document}", "a <|im_end|> {query}")]:
        ids = made.encode(form.replace("{query}", "\0").replace("{document}", second).replace("\0", first), add_special_tokens=False).ids
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        yes, no = (logits[made.token_to_id(text)] for text in ("yes", "no"))
        golden.append(dict(first=first, second=second, n_tokens=len(ids), logit=float(yes - no), score=float(torch.sigmoid(yes - no))))
    json.dump(golden, open(os.path.join(path, "golden.json"), "w"))
    print(f"{name:20} logits {[round(one['logit'], 3) for one in golden]}")


if __name__ == "__main__":
    every = {**{f"sentences/{name}": make_sentences for name in SENTENCES},
             **{f"classifiers/{name}": make_classifier for name in CLASSIFIERS},
             **{f"cross_encoders/{name}": make_cross_encoder for name in CROSS_ENCODERS},
             "cross_encoders/deberta_v3": make_piece_cross_encoder,
             **{f"cross_encoders/{name}": make_reranker for name in ("qwen3_reranker", "qwen3_reranker_tied")},
             **{name: make_described for name in DESCRIBED},
             **{name: make for name in MODELS}}
    for wanted in sys.argv[1:] or every:
        every[wanted](wanted.split("/")[-1])
