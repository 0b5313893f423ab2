"""What a client asks, as far as routing has to know."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Asked"]


@dataclass(frozen=True)
class Asked:
    """One request.

    Args:
        path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
        model: What stands under ``model``: a route, or the name of an expert.
        text: What the router reads.
        body: The request as it came.
        model_at: Where in the body the value of ``model`` begins and ends, quotes included.
        is_stream: Whether the answer is wanted in pieces.
        needs: What an expert must be able to do: ``"tools"``, ``"vision"``, ``"json"``.
        tokens_in: Tokens of the request, at four characters a token.
        tokens_out: Tokens that the client allows at most, or none.
        conversation: A digest that stays the same while a conversation goes on, or none where there is none.
        follows: Digest of the response that a response goes on from (``previous_response_id``), which only who gave it knows, or none.
        is_first_turn: Whether nothing was answered yet: who began with the same words before had another conversation, even if its
            digest is the same.

    Example:
        >>> asked = Asked("chat/completions", "mildroute", "Hi", b'{"model":"mildroute"}', (9, 20))
        >>> asked.body_for("small-1")
        b'{"model":"small-1"}'
    """

    path: str
    model: str
    text: str
    body: bytes = field(repr=False)
    model_at: tuple[int, int]
    is_stream: bool = False
    needs: frozenset[str] = frozenset()
    tokens_in: int = 0
    tokens_out: int | None = None
    conversation: str | None = None
    follows: str | None = None
    is_first_turn: bool = False

    def body_for(self, model: str) -> bytes:
        """The request as it came, byte for byte, but for the model."""
        import json

        start, end = self.model_at
        return self.body[:start] + json.dumps(model).encode() + self.body[end:]
