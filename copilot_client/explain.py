"""``copilot search --explain``: the parts of each hit's score, each a share of the best there can be."""

from __future__ import annotations

from copilot_client.terminal import Style
from copilotd.text import printable
from copilotd.wire import JSONObject


def explanation(result: JSONObject, style: Style) -> list[str]:
    """Returns how sure the daemon is, what it searched instead of unknown words, and each hit's score in parts."""
    lines = [style.bold("Why")]
    if "confidence" in result:
        level = printable(str(result.get("confidence_level") or ""))
        lines.append(f"   confidence {float(result['confidence']):.2f} ({level})")
    for word, near in dict(result.get("corrections") or {}).items():
        lines.append(f"   {printable(word)}: not in the documents, searched as {printable(near)}")
    for number, hit in enumerate(result.get("hits") or (), 1):
        lines.append(f"{number}. {float(hit.get('score') or 0):.3f} = {_parts(hit)}")
    return lines


def _parts(hit: JSONObject) -> str:
    scores = dict(hit.get("scores") or {})
    dense = scores.get("dense")
    parts = ["no vector yet"] if dense is None else []
    for name, value in dict(hit.get("details") or {}).items():
        if not value:
            continue
        shown = f"{printable(name)} {float(value):.3f}"
        if name == "dense":
            shown += f" (cosine {float(dense or 0):.3f})"
        if name == "words":
            shown += f" (BM25 {float(scores.get('lexical') or 0):.1f})"
        parts.append(shown)
    return " + ".join(parts).replace("+ stub -", "- stub ").replace("+ late -", "- late ")
