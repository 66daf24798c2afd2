"""The family's tokenizer: SentencePiece BPE with byte fallback, 4,096 pieces, Llama's conventions.

Ids: 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then merged pieces and characters. Text gets one leading space (as
Llama 2 does); a newline is the byte piece <0x0A>. Nothing is normalized, so decoding returns the text.
"""

import json
import pathlib

import sentencepiece

UNK, BOS, EOS = 0, 1, 2


def train(texts, path, vocab=4096, threads=2):
    """Trains on an iterable of stories and writes `path` (tokenizer.model)."""
    lines = (line for text in texts for line in text.split("\n") if line.strip())
    prefix = str(path).removesuffix(".model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_prefix=prefix, model_type="bpe", vocab_size=vocab, byte_fallback=True,
        character_coverage=0.9999, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, split_digits=True, add_dummy_prefix=True, max_sentence_length=16384,
        unk_id=UNK, bos_id=BOS, eos_id=EOS, pad_id=-1, num_threads=threads, minloglevel=1)
    pathlib.Path(prefix + ".vocab").unlink()


def load(path):
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def merges(sp):
    """The merge list that makes Hugging Face BPE agree: every split of a piece into two pieces, best first.

    SentencePiece merges the pair whose result has the highest score; a list ordered by that score (then by the
    ids of the parts, for one deterministic order) gives the same segmentation.
    """
    ids = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())
           if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i))}
    found = []
    for piece, i in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                found.append((-sp.get_score(i), ids[left], ids[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def write_hugging_face(model_path, folder):
    """Writes tokenizer.json, tokenizer_config.json and tokenizer.model into a Hugging Face directory."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    sp, folder = load(model_path), pathlib.Path(folder)
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    t = Tokenizer(models.BPE(vocab, merges(sp), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                     special_tokens=[("<s>", BOS)])
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<unk>", "<s>", "</s>")])
    t.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 512}, indent=2) + "\n")
    (folder / "tokenizer.model").write_bytes(pathlib.Path(model_path).read_bytes())
