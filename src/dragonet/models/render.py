"""Messages to prompt ids through the model's chat template, and ids back to text.

The one place that renders: preview, training, sampling and serving see the same ids. Templates are probed, never
guessed from a model's name: what ends a turn, and whether a system message is added or dropped. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonet.errors import ModelError
from dragonet.models.folder import listing
from dragonet.models.ref import ModelRef
from dragonet.models.support import first_line, read_json
from dragonet.types import Message

__all__ = ["Renderer", "load_tokenizer", "make_renderer"]

_SANE_LENGTH = 10**8  # tokenizers without a limit report an astronomic one
_USER, _ANSWER, _NEXT, _SYSTEM = "zqxuser", "zqxanswer", "zqxnext", "zqxsystem"  # probes that no template contains
_CONTROL = "\0"


class Renderer:
    """Turn messages into prompt ids and ids into text, for one tokenizer and one chat template.

    `chat_template` None joins the contents of the messages with a blank line, after the begin token if the tokenizer
    adds one by itself. `pad_id` may be one of `eos_ids` (it is for SmolLM2): mask by length, never by `ids == pad_id`.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        chat_template: str | None,
        name: str = "this model",
        template_file: Path | None = None,
        extra_eos_ids: frozenset[int] = frozenset(),
        context_length: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.name = name
        self._template_file = template_file
        self._bos_text = _own_bos(tokenizer) if chat_template is None else ""
        added = {int(i): token for i, token in tokenizer.added_tokens_decoder.items()}
        self._special_texts = tuple(token.content for token in added.values() if token.special)
        eos = {int(tokenizer.eos_token_id)} if tokenizer.eos_token_id is not None else set()
        self.eos_ids: frozenset[int] = frozenset(eos | extra_eos_ids | _turn_end(self, added))
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self.eos_ids, default=0)
        self.pad_id: int = int(pad)
        self.context_length: int = context_length or _tokenizer_limit(tokenizer)
        self._adds_system, self._drops_system = _system_notices(self)
        self.notices: tuple[str, ...] = self._adds_system + self._drops_system

    def prompt_text(self, messages: Sequence[Message]) -> str:
        """Return the rendered prompt with its special tokens, ready for the assistant's answer.

        Raises ModelError when the chat template refuses these messages.
        """
        cleaned = [{key: _clean(value) for key, value in message.items()} for message in messages]
        if self.chat_template is None:
            return self._bos_text + "\n\n".join(_plain(message.get("content")) for message in cleaned)
        return self._render(cleaned, add_generation_prompt=True)

    def notices_about(self, conversations: Iterable[Sequence[Message]]) -> tuple[str, ...]:
        """Return those of `notices` that concern at least one of these conversations."""
        given = {any(message.get("role") == "system" for message in messages) for messages in conversations}
        return (self._adds_system if False in given else ()) + (self._drops_system if True in given else ())

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `prompt_text`, with the begin token at most once."""
        return self.encode(self.prompt_text(messages))

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text` as it stands: special tokens written in it count, none are added."""
        # not verbose: whether a prompt is too long is for the caller to judge, by `context_length`
        ids = self.tokenizer(_clean(text), add_special_tokens=False, verbose=False)["input_ids"]
        return [int(i) for i in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens; blanks stay as they are."""
        kept = [int(i) for i in ids if int(i) not in self.eos_ids]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def decode_raw(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` with special tokens."""
        return str(
            self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def _render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str:
        import jinja2

        if not messages:
            raise ModelError("a prompt without messages cannot be rendered; give it at least one user message")
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self.chat_template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        except jinja2.TemplateSyntaxError as error:
            where = self._template_file or f"the chat template of {self.name}"
            raise ModelError(
                f"{where}, line {error.lineno}: not a Jinja template: {first_line(error)}; correct the line, or give "
                "another template with model.chat_template (a file, or none)"
            ) from error
        except Exception as error:  # a template is code, and may end in any way
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ModelError(
                f"the chat template of {self.name} refuses messages with the roles {roles}: {first_line(error)}; "
                "change the messages, or give another template with model.chat_template (a file, or none)"
            ) from error
        return str(text)


def load_tokenizer(ref: ModelRef) -> Any:
    """Return the tokenizer in the model's folder. Raises ModelError when there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            str(ref.folder),
            local_files_only=True,
            clean_up_tokenization_spaces=False,
            trust_remote_code=ref.trust_remote_code,
        )
    except Exception as error:  # the tokenizers library raises bare Exceptions for files it cannot read
        raise ModelError(
            f"model {ref.name!r}: no tokenizer can be loaded from {ref.folder}, which holds {listing(ref.folder)}; "
            f"put tokenizer.json and tokenizer_config.json there ({first_line(error)})"
        ) from error


def make_renderer(ref: ModelRef, chat_template: str | Path = "auto") -> Renderer:
    """Return the renderer of a model. `chat_template` is `auto` (the model's own), `none`, or a jinja file."""
    tokenizer = load_tokenizer(ref)
    config = read_json(ref.folder / "config.json")
    generation = read_json(ref.folder / "generation_config.json")
    template, file = _pick_template(tokenizer, chat_template)
    renderer = Renderer(
        tokenizer,
        chat_template=template,
        name=ref.name,
        template_file=file,
        extra_eos_ids=_ids(generation.get("eos_token_id")) or _ids(config.get("eos_token_id")),
        context_length=_context_length(config),
    )
    _check_template(renderer)
    if not renderer.eos_ids:
        raise ModelError(
            f"model {ref.name!r}: neither tokenizer nor generation_config.json names an end token, so no answer could "
            "ever end; set eos_token in tokenizer_config.json"
        )
    return renderer


def _check_template(renderer: Renderer) -> None:
    """Raise ModelError for a template that does not parse, or in which all prompts look the same."""
    import jinja2

    try:
        first, second = (renderer.prompt_text([{"role": "user", "content": text}]) for text in (_USER, _NEXT))
    except ModelError as error:
        if isinstance(error.__cause__, jinja2.TemplateSyntaxError):
            raise
        return  # it may want a system message, and says so when a prompt has none
    if first == second:
        raise ModelError(
            f"{renderer._template_file or f'the chat template of {renderer.name}'} leaves out what the user says, so "
            "all prompts would be equal; write {{ messages[-1].content }} into it, or set model.chat_template to none"
        )


def _pick_template(tokenizer: Any, chat_template: str | Path) -> tuple[str | None, Path | None]:
    """Return the text of the template, and the file it came from where the user named one."""
    if chat_template == "none":
        return None, None
    if chat_template == "auto":
        return str(tokenizer.get_chat_template()) if tokenizer.chat_template else None, None
    try:
        path = Path(chat_template).expanduser()
        return path.read_text(encoding="utf-8"), path
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"chat_template {str(chat_template)!r} cannot be read ({first_line(error)}); "
            "give auto, none, or the path of a jinja file"
        ) from error


def _own_bos(tokenizer: Any) -> str:
    """The begin token as text when the tokenizer puts one before plain text, else nothing."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return ""
    with_special = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    adds = bool(with_special) and with_special[0] == bos and plain[:1] != [bos]
    return str(tokenizer.bos_token) if adds else ""


def _turn_end(renderer: Renderer, added: Mapping[int, Any]) -> set[int]:
    """The token a template writes straight after the assistant's words, if it is a control token."""
    if renderer.chat_template is None:
        return set()
    turn = [{"role": "user", "content": _USER}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = renderer._render(turn, add_generation_prompt=False)
    except ModelError:
        return set()
    _, found, rest = text.rpartition(_ANSWER)
    ids = renderer.encode(rest.lstrip()) if found else []
    return {ids[0]} if ids and ids[0] in added else set()


def _system_notices(renderer: Renderer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the template does without and with a system message that a user would not expect, found by probes."""
    if renderer.chat_template is None:
        return (), ()
    adds, drops = [], []
    added = _added_system(renderer)
    if added:
        adds.append(
            f"the chat template of {renderer.name} adds its own system message when none is given: {added!r}; "
            "set a system message to replace it"
        )
    given = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
    try:
        if _SYSTEM not in renderer._render(given, add_generation_prompt=True):
            drops.append(
                f"the chat template of {renderer.name} leaves out the system message; put its text into the prompt"
            )
    except ModelError:
        pass  # a template that refuses a system message says so when one is given
    return tuple(adds), tuple(drops)


def _added_system(renderer: Renderer) -> str:
    """The words a template puts before the first user turn that it does not put before the second."""
    turns = [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _NEXT},
    ]
    try:
        text = renderer._render(turns, add_generation_prompt=False)
    except ModelError:
        return ""
    for special in renderer._special_texts:  # as one sign each, so that no two of them share half a token
        text = text.replace(special, _CONTROL)
    before = text.partition(_USER)[0]
    between = text.partition(_ANSWER)[2].partition(_NEXT)[0]
    shared = 0
    while shared < min(len(before), len(between)) and before[-1 - shared] == between[-1 - shared]:
        shared += 1
    words = before[: len(before) - shared].replace(_CONTROL, "\n").strip()
    return words.removeprefix("system").strip()


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which no tokenizer can read, and join the pairs that form a character."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in content)
    return "" if content is None else str(content)


def _context_length(config: Mapping[str, Any]) -> int:
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, Mapping) else config
    for key in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"):
        value = merged.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _tokenizer_limit(tokenizer: Any) -> int:
    return int(min(tokenizer.model_max_length, _SANE_LENGTH))


def _ids(value: Any) -> frozenset[int]:
    if isinstance(value, int):
        return frozenset({value})
    return frozenset(int(item) for item in value) if isinstance(value, list) else frozenset()
