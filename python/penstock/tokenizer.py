"""The model's tokenizer, with the methods of transformers' tokenizers that scripts use."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ._core import NativeTokenizer

Messages = Sequence[Dict[str, Any]]
Render = Callable[[Any, Dict[str, Any]], Tuple[str, List[int]]]


class Tokenizer:
    """A tokenizer: encodes and decodes text and renders conversations to prompts. Results equal those of transformers."""

    def __init__(self, native: NativeTokenizer, render: Render, chat_template: Optional[str] = None) -> None:
        self._native = native
        self._render = render
        self._info = native.info()
        self._chat_template = chat_template

    bos_token_id = property(lambda self: self._info["bos_token_id"], doc="Id of the first token, or None.")
    eos_token_id = property(lambda self: self._info["eos_token_id"], doc="Id of the last token, or None.")
    unk_token_id = property(lambda self: self._info["unk_token_id"], doc="Id of what is unknown, or None.")
    pad_token_id = property(lambda self: self._info["pad_token_id"], doc="Id of padding, or None.")
    bos_token = property(lambda self: self._piece("bos_token_id"), doc="The first token, or None.")
    eos_token = property(lambda self: self._piece("eos_token_id"), doc="The last token, or None.")
    unk_token = property(lambda self: self._piece("unk_token_id"), doc="What is unknown, or None.")
    pad_token = property(lambda self: self._piece("pad_token_id"), doc="Padding, or None.")

    def _piece(self, name: str) -> Optional[str]:
        token = self._info[name]
        return None if token is None else self._native.piece_of(token)

    @property
    def vocab_size(self) -> int:
        """The largest id + 1."""
        return int(self._info["vocab_size"])

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def all_special_ids(self) -> List[int]:
        """Ids of tokens that have no text of their own."""
        return list(self._info["all_special_ids"])

    @property
    def all_special_tokens(self) -> List[str]:
        """Spellings of the special tokens."""
        return [self._native.piece_of(token) or "" for token in self._info["all_special_ids"]]

    @property
    def chat_template(self) -> Optional[str]:
        """The Jinja source of the chat template; None if the model has none."""
        return self._chat_template or self._info["chat_template"] or None

    def get_vocab(self) -> Dict[str, int]:
        """Returns a dictionary from the spelling of every token to its id."""
        vocab: Dict[str, int] = {}
        for token in range(self.vocab_size):
            piece = self._native.piece_of(token)
            if piece:
                vocab[piece] = token
        return vocab

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        """Returns the token ids of a text; names of special tokens in it become these tokens."""
        return self._native.encode(text, add_special_tokens, True)

    def __call__(self, text: Union[str, Sequence[str]], add_special_tokens: bool = True) -> Dict[str, Any]:
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        rows = [self.encode(each, add_special_tokens) for each in text]
        return {"input_ids": rows, "attention_mask": [[1] * len(ids) for ids in rows]}

    def decode(self, token_ids: Union[int, Sequence[int]], skip_special_tokens: bool = False) -> str:
        """Returns the text of token ids."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._native.decode(ids, skip_special_tokens)

    def batch_decode(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> List[str]:
        """Returns the texts of several lists of token ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def tokenize(self, text: str) -> List[str]:
        """Returns the spellings of a text's tokens."""
        return [self._native.piece_of(token) or "" for token in self.encode(text, add_special_tokens=False)]

    def convert_tokens_to_ids(self, tokens: Union[str, Sequence[str]]) -> Any:
        """Returns the ids of tokens by their spellings; unk_token_id for unknown ones."""
        if isinstance(tokens, str):
            found = self._native.id_of(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Union[int, Sequence[int]]) -> Any:
        """Returns the spellings of token ids."""
        if isinstance(ids, int):
            return self._native.piece_of(ids)
        return [self._native.piece_of(token) for token in ids]

    def apply_chat_template(self, conversation: Messages, tools: Optional[Sequence[Dict[str, Any]]] = None,
                            chat_template: Optional[str] = None, add_generation_prompt: bool = False,
                            continue_final_message: bool = False, tokenize: bool = True, return_dict: bool = False,
                            **variables: Any) -> Any:
        """Returns the prompt of a conversation: token ids; with tokenize=False the text; with return_dict=True ids and attention
        mask. Further arguments are variables of the template; what transformers' method does to the tokens is refused."""
        for name in ("padding", "truncation", "max_length", "return_tensors", "return_assistant_tokens_mask", "tokenizer_kwargs"):
            if variables.pop(name, None):
                raise ValueError(f"apply_chat_template: {name} is not supported: the prompt is returned as it is, in lists")
        text, ids = self._render(list(conversation), {
            "tools": None if tools is None else list(tools), "chat_template": chat_template or self._chat_template,
            "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message,
            "variables": variables or None})
        if not tokenize:
            return text
        return {"input_ids": ids, "attention_mask": [1] * len(ids)} if return_dict else ids
