"""The card (README.md) that ``save_pretrained`` writes into a model's folder."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protodepth.storage.history import History

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth


CARD = """---
library_name: protodepth
pipeline_tag: depth-estimation
tags: [depth-completion, continual-learning, protodepth]
---

# {title}

Depth completion: an image, sparse depth and the camera's intrinsics give dense depth in metres. \
A frozen `{backbone}` network
({parameters:,} parameters, depth from {low:g} to {high:g} m) with a small prototype set for each \
domain it was adapted to
(ProtoDepth, CVPR 2025).

```python
from protodepth import ProtoDepth
model = ProtoDepth.from_pretrained("path/to/this/folder")
p = model.predict(image, sparse_depth, intrinsics)  # HxWx3 uint8, HxW metres (0 = no point), fx, fy, cx, cy
p.depth, p.domain
```

## Domains

{domains}
{notes}
Files are safetensors and JSON with checksums; nothing in this folder is executed when it is loaded.
"""


def card(model: "ProtoDepth", notes: Mapping[str, Any], title: str = "ProtoDepth model") -> str:
    """README.md of a model folder, in Markdown with the hub's front matter."""
    low, high = model.backbone.depth_range
    overhead = model.overhead()
    return CARD.format(
        title=title,
        backbone=model.backbone.name,
        parameters=overhead.backbone,
        low=low,
        high=high,
        domains=_domains(model, overhead.domains),
        notes=_notes(notes),
    )


def _domains(model: "ProtoDepth", counts: Mapping[str, int]) -> str:
    if not model.domains:
        return "None yet: the network as it is. `protodepth adapt` adds one from an unlabelled recording."
    lines = ["| name | parameters | learned from | how well |", "|---|---:|---|---|"]
    for name in model.domains:
        size = "descriptor only (the network itself)" if model.domain(name).base else f"{counts[name]:,}"
        history = model.history.get(name, History())
        lines.append(f"| {name} | {size} | {plain(_source(history))} | {plain(_verdict(history))} |")
    return "\n".join(lines)


def _source(history: History) -> str:
    text = history.learned_from or "not recorded"
    return text if history.frames is None else f"{text}, {history.frames} frames"


def _verdict(history: History) -> str:
    """What ``adapt`` found at sparse points that the network was not shown."""
    error = history.held_out_error_mm
    return f"error at hidden sparse points {error.get('before')} -> {error.get('after')} mm" if error else "-"


def _notes(notes: Mapping[str, Any]) -> str:
    lines = [f"- {plain(str(key))}: {plain(_short(value))}" for key, value in notes.items()]
    return "\n## Notes\n\n" + "\n".join(lines) + "\n" if lines else ""


def _short(value: Any) -> str:
    """Of a nested table the plain entries; all of it is in config.json."""
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{k} {v}" for k, v in value.items() if not isinstance(v, Mapping | list | tuple))


def plain(text: str, most: int = 200) -> str:
    """Text from elsewhere as one harmless line of Markdown: no tag, no link, no cell of its own.

    >>> plain("<img src=x> [a](javascript:alert(1)) | b")
    '&lt;img src=x> (a)(javascript:alert(1)) / b'
    """
    for sign, harmless in (("|", "/"), ("<", "&lt;"), ("`", "'"), ("[", "("), ("]", ")")):
        text = text.replace(sign, harmless)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
