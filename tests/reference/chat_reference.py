#!/usr/bin/env python3
"""Conversations as Hugging Face's transformers writes them with the chat templates of published models: makes
../fixtures/chat/cases.json from the templates beside it.

usage: python chat_reference.py ../fixtures/chat

Needs transformers and jinja2. cases.json is an object: "conversations", each a list of messages; and "templates", for
each the texts of its BOS and EOS tokens and of every conversation, up to where the answer begins. null instead of a
text: the template refuses the conversation, or leaves its system prompt out, or makes one up from the date.
"""
import datetime
import json
import pathlib
import sys

import tokenizers
import transformers
from transformers.utils import chat_template_utils

DAY = datetime.datetime(2026, 3, 7, 12)  # what templates that ask for the date are told

S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "Hello")],
    [(S, "Be brief."), (U, "Hello")],
    [(U, "Hello"), (A, "Hi! How are you?"), (U, "Well.")],
    [(S, "Be brief."), (U, "Hello"), (A, "Hi!"), (U, "Who are you?"), (A, "A model."), (U, "Which?")],
    [(S, " Be\nbrief. \n"), (U, " \t Hello\n\n"), (A, "\n  Hi! \t"), (U, "  Well.\n")],
    [(S, "\u00a0S\x1c"), (U, "\u3000x\u2003\u200b"), (A, "\x1fa\x85\u2028"), (U, "\x0b\x0c\u1680y\ufeff\u205f")],
    [(U, "")],
    [(S, ""), (U, "Hello"), (A, ""), (U, "Well.")],
    [(S, "  "), (U, " \n ")],
    [(U, "Say <|im_end|>, </s>, [/INST] and <|eot_id|>"), (A, "<end_of_turn><|end|>"), (U, "<s>")],
    [(U, "1+1?"), (A, "<think>\nOne and one.\n</think>\n\nTwo."), (U, "Sure?")],
    [(U, "1?"), (A, "<think></think> </think>\n \nOne"), (U, "2?"), (A, "no end: <think> Two"), (U, "3?")],
    [(S, "{{ 'a' }} {% b %}"), (U, '"\\n" \'%s\' {# c #}'), (A, "\\"), (U, "\\\\")],
    [(S, "Gr\u00fc\u00dfe \U0001f600"), (U, "\u4f60\u597d"), (A, "\u3053\u3093\u306b\u3061\u306f"), (U, "e\u0301")],
]

# BOS and EOS of each model
TOKENS = {
    "deepseek-r1-distill": ("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    "gemma2": ("<bos>", "<eos>"),
    "gemma3": ("<bos>", "<eos>"),
    "hermes": ("<s>", "<|im_end|>"),
    "llama3-first": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3.2": ("<|begin_of_text|>", "<|eot_id|>"),
    "olmo2": ("<|endoftext|>", "<|endoftext|>"),
    "phi3-small": ("<|endoftext|>", "<|endoftext|>"),
    "phi4": ("<|endoftext|>", "<|im_end|>"),
    "phi4-mini": ("<|endoftext|>", "<|endoftext|>"),
    "qwen2": ("", "<|im_end|>"),
    "qwen2.5": ("", "<|im_end|>"),
    "qwen3": ("", "<|im_end|>"),
    "smollm2": ("<|im_start|>", "<|im_end|>"),
}


class Noon(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


def render(tokenizer, template, conversation):
    messages = [{"role": role, "content": content} for role, content in conversation]
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # jinja2's, from raise_exception
        if type(error).__name__ != "TemplateError":
            raise
        return None
    made_up = "default_system_message" in template and conversation[0][0] != S
    return None if made_up else text


def renderings(template, bos, eos):
    empty = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=empty, bos_token=bos, eos_token=eos)
    texts = [render(tokenizer, template, c) for c in CONVERSATIONS]
    if texts[1] is not None and CONVERSATIONS[1][0][1] not in texts[1]:
        texts = [None if c[0][0] == S else t for c, t in zip(CONVERSATIONS, texts)]
    return texts


def main(folder):
    chat_template_utils.datetime = Noon
    templates = {}
    for path in sorted(folder.glob("*.jinja")):
        bos, eos = TOKENS.get(path.stem, ("<s>", "</s>"))
        texts = renderings(path.read_text(encoding="utf-8"), bos, eos)
        templates[path.stem] = {"bos": bos, "eos": eos, "texts": texts}
    conversations = [[{"role": r, "content": c} for r, c in conversation] for conversation in CONVERSATIONS]
    cases = {"conversations": conversations, "templates": templates}
    (folder / "cases.json").write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
