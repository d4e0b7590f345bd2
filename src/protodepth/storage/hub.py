"""Models on a hub: upload and download with huggingface_hub (an extra)."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protodepth.errors import ConfigError, ProtoDepthError

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth


def push_to_hub(model: "ProtoDepth", repository: str, *, private: bool = True, message: str = "Upload model") -> str:
    """Save the model and upload its folder; returns the address.  You must be logged in (``hf auth login``).

    Example: ``push_to_hub(model, "me/warehouse-depth")``
    """
    library = _library()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        model.save_pretrained(folder)
        try:
            library.create_repo(repository, private=private, exist_ok=True)
            library.upload_folder(repo_id=repository, folder_path=str(folder), commit_message=message)
        except (library.errors.HfHubHTTPError, library.errors.HFValidationError, OSError) as error:
            raise ProtoDepthError(f"cannot upload to {repository!r}: {_first_line(error)}") from error
    return f"https://huggingface.co/{repository}"


def from_hub(repository: str, *, revision: str | None = None) -> "ProtoDepth":
    """Download a model folder (or find it in the local cache) and load it; checksums are verified as for any folder."""
    from protodepth.model import ProtoDepth

    library = _library()
    patterns = ["*.json", "*.safetensors", "README.md"]
    try:
        folder = library.snapshot_download(repository, revision=revision, allow_patterns=patterns)
    except (library.errors.HfHubHTTPError, library.errors.HFValidationError, OSError) as error:
        raise ProtoDepthError(f"cannot download {repository!r}: {_first_line(error)}") from error
    with tempfile.TemporaryDirectory() as place:  # the cache is made of links, which a model folder may not have
        shutil.copytree(folder, Path(place) / "model")
        return ProtoDepth.from_pretrained(Path(place) / "model")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ModuleNotFoundError:
        raise ConfigError("this needs huggingface_hub: pip install 'protodepth[hub]'") from None
    return huggingface_hub
