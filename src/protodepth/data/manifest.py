"""What all datasets share: scanning a folder into a Domain, directly or by a manifest that ``data prepare`` wrote.

A dataset module registers one function, root and options -> ``Scan``: where its frames are, how to read them and how
many are known to exist.  ``Scan.domain()`` opens it at once; ``prepare`` keeps the entries as JSON lines
(``train.jsonl``, ``val.jsonl``, ``test.jsonl``, ``manifest.json``; no copied images) and the derived depth maps.
"""

import importlib
import inspect
import io
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pydantic

from protodepth import cluster
from protodepth.data.arguments import datasets, split_query
from protodepth.data.entries import Container, Entry, EntryFrames, EntryTable, FrameReader, digest
from protodepth.data.faults import check_share, foreign
from protodepth.data.files import images
from protodepth.data.files.text import parse_json, reading
from protodepth.data.frame import SPLITS, Domain, EvalRules
from protodepth.errors import DataError, UnknownNameError
from protodepth.progress import Progress
from protodepth.registry import Registry
from protodepth.storage import claims
from protodepth.storage.files import read_json, write_bytes, write_json
from protodepth.storage.space import check_memory_of_workers

logger = logging.getLogger("protodepth")

INDOOR = EvalRules(min_depth=0.2, max_depth=5.0)
FORMAT = 1
TOGETHER = 8  # entries that a process is given at once
REQUEST = "prepare.json"
TOO_FEW = "too few sparse points"
Counts = Mapping[str, tuple[int, int]]  # what -> (found, published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a dataset's folder holds.  ``splits`` gives the entries anew at each call."""

    name: str
    reader: FrameReader
    rules: EvalRules
    splits: Mapping[str, Callable[[], Iterable[Entry]]]
    expected: Mapping[str, int] = field(default_factory=dict)  # frames of a split that are published
    tally: Callable[[], Counts] = dict  # what else is counted: sequences, drives, scans
    options: Mapping[str, Any] = field(default_factory=dict)
    derive: tuple[str, ...] = ()  # what ``prepare`` writes out because it is slow to get at: "sparse", "truth", "image"
    min_points: Mapping[str, int] = field(default_factory=dict)  # per split: ``prepare`` drops frames with fewer
    notes: tuple[str, ...] = ()  # what was seen and not understood, or decided

    def domain(self, *, withhold: float = 0.0) -> Domain:
        """The Domain, with entries packed in memory (about 300 bytes a frame)."""
        tables = {s: EntryTable.pack(self.splits[s]()) if s in self.splits else EntryTable.pack([]) for s in SPLITS}
        return _domain(self, tables, withhold, {})

    def counts(self, frames: Mapping[str, int]) -> Counts:
        """Everything whose number is published: what -> (found, published)."""
        return {**{f"{s} frames": (frames.get(s, 0), n) for s, n in self.expected.items()}, **self.tally()}


def _counts_text(counts: Counts) -> str:
    """>>> _counts_text({"test frames": (12, 654)})
    '12 of 654 test frames'
    """
    return ", ".join(f"{counted} of {known} {what}" for what, (counted, known) in counts.items())


def _domain(scan: Scan, tables: Mapping[str, EntryTable], withhold: float, bad: Mapping[str, str]) -> Domain:
    reader = replace(scan.reader, withhold=withhold) if withhold else scan.reader
    parts = {s: EntryFrames(tables[s], reader) for s in SPLITS}
    counts = {s: len(parts[s]) for s in SPLITS}
    if not any(counts.values()):
        raise DataError(_nothing(scan))
    known = scan.counts(counts)
    odd = {what: pair for what, pair in known.items() if pair[0] != pair[1]}
    parted = f"{scan.name}: found {_counts_text(odd)}: a part of the download, or another selection?"
    notes = (*([parted] if odd else []), *scan.notes)
    for note in notes:
        logger.warning("%s", note)
    identity = {
        "dataset": scan.name,
        **reader.describe(),
        "options": dict(scan.options),
        "frames": counts,
        "counts": {what: {"found": counted, "published": number} for what, (counted, number) in known.items()},
        "skipped": {"bad": len(bad)},
        "entries": digest(*parts.values()),
        "notes": notes,
    }
    return Domain(name=scan.name, rules=scan.rules, identity=identity, **parts)


PARSED_BY_OTHERS = ("argoverse2", "nyu_v2", "rosbag", "waymo")  # by libraries that raise anything at a damaged file


def _nothing(scan: Scan) -> str:
    """The error of a folder without a frame: what was expected, what is there."""
    root = scan.reader.root
    names = sorted(p.name for p in root.iterdir())[:6] if root.is_dir() else []
    there = "; ".join(scan.notes) or f"it holds {', '.join(names) or 'nothing'}"
    return f"no frames of {scan.name} found under {root}: {there}.  docs/datasets.md has the expected folders"


scans: Registry[Callable[..., Scan]] = Registry("dataset_scan")


def register_scan(name: str) -> Callable[[Callable[..., Scan]], Callable[..., Scan]]:
    """Register ``scan(root, *, option=...)`` both for ``prepare`` and as the data source ``name:root?option=value``."""

    def add(scan: Callable[..., Scan]) -> Callable[..., Scan]:
        scan = _guarded(scan) if name in PARSED_BY_OTHERS else scan
        scans.register(name)(scan)
        datasets.register(name)(partial(_open_scan, name, scan))
        return scan

    return add


def _guarded(scan: Callable[..., Scan]) -> Callable[..., Scan]:
    @wraps(scan)
    def scan_whole(root: Path, **options: Any) -> Scan:
        with foreign(root):
            return scan(root, **options)

    return scan_whole


def _open_scan(name: str, scan: Callable[..., Scan], argument: str, **options: Any) -> Domain:
    root, query = split_query(argument)
    options = {**query, **{k: v for k, v in options.items() if v is not None}}
    withhold = float(options.pop("withhold", 0.0))
    guard = foreign(Path(root)) if name in PARSED_BY_OTHERS else nullcontext()
    with guard:  # also around the listing of the entries, which may read them
        return _call_scan(name, scan, Path(root), options).domain(withhold=withhold)


def _call_scan(name: str, scan: Callable[..., Scan], root: Path, options: Mapping[str, Any]) -> Scan:
    """Call a scan with options from text: converted by its annotations, unknown ones refused with the choices."""
    known = [p for p in inspect.signature(scan).parameters if p != "root"]
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, (*known, "withhold"))
    if not root.exists():
        raise DataError(
            f"{root} does not exist: give the folder that holds {name} (docs/datasets.md says how it looks)"
        )
    try:
        return pydantic.validate_call(config=pydantic.ConfigDict(arbitrary_types_allowed=True))(scan)(root, **options)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise DataError(f"{name}: option {where!r} {first['msg'].lower()}, got {first['input']!r}") from None


def held_out(key: str, share: float) -> bool:
    """For scans of datasets: whether a sequence is of the validation part, by a fixed draw of its name."""
    return zlib.crc32(key.encode()) % 1000 < round(share * 1000)


def triplets(refs: list[str], step: int, first: int = 0, last: int = 0) -> Iterator[tuple[int, list[str]]]:
    """For scans of datasets: (number, [before, after]) of the frames that have both neighbours ``step`` away."""
    for i in range(max(step, first), len(refs) - max(step, last)):
        yield i, [refs[i - step], refs[i + step]]


# --- manifests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What ``prepare`` did."""

    out: Path
    counts: dict[str, int]
    derived: int  # depth maps written in this call
    reused: int  # depth maps of an earlier call
    bad: dict[str, str]  # frame -> why it was left out
    rejected: int  # frames with fewer sparse points than the dataset's rule asks for


def prepare(
    dataset: str,
    raw: str | Path,
    out: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    workers: int = 0,
    on: cluster.On = "here",
    progress: Progress | None = None,
) -> Prepared:
    """Write the manifest of a dataset: ``prepare("kitti", "/data/kitti", "kitti_manifest")``.

    Depth maps that are slow to make (sampled corners, accumulated scans) are written once; a second call takes up where
    the first stopped.  ``workers`` processes share that work, or a Ray cluster.  More than 5 % bad frames stop it.
    """
    check_memory_of_workers(workers)
    scan = _call_scan(dataset, _scan_function(dataset), Path(raw), options or {})
    folder = Path(out)
    if all(next(iter(entries()), None) is None for entries in scan.splits.values()):
        raise DataError(_nothing(scan))  # before anything is written: another try will name another folder
    _check_same_request(folder, _request(scan))
    counts, tally, rejected = dict.fromkeys(SPLITS, 0), [0, 0], 0
    bad: dict[str, str] = {}
    with cluster.pool(on if scan.derive else "here", workers if scan.derive else 0, seen=folder / REQUEST) as pool:
        for split in SPLITS:
            entries = EntryTable.pack(scan.splits[split]() if split in scan.splits else ())
            lines = io.BytesIO()
            for n, (entry, why, written, reused) in enumerate(_derive_all(scan, folder, split, entries, pool)):
                if progress:
                    progress(f"{dataset} {split}", n + 1, len(entries))
                tally = [tally[0] + written, tally[1] + reused]
                if why == TOO_FEW:
                    rejected += 1
                elif why:
                    bad[f"{split}/{entry['id']}"] = why
                else:
                    lines.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
                    counts[split] += 1
            own = {frame: reason for frame, reason in bad.items() if frame.startswith(f"{split}/")}
            check_share(f"{dataset} {split}", own, len(entries))
            write_bytes(folder / f"{split}.jsonl", lines.getvalue())
    if not any(counts.values()):
        raise DataError(_left_nothing(scan, bad, rejected))
    results = {"counts": counts, "tally": scan.tally(), "bad": bad, "rejected": rejected, "reader": _reader_json(scan)}
    results["notes"] = list(scan.notes)
    write_json(folder / "manifest.json", {**_request(scan), **results})
    return Prepared(out=folder, counts=counts, derived=tally[0], reused=tally[1], bad=bad, rejected=rejected)


def _left_nothing(scan: Scan, bad: Mapping[str, str], rejected: int) -> str:
    why = [f"{len(bad)} cannot be read ({': '.join(next(iter(bad.items())))})"] if bad else []
    why += [f"{rejected} have fewer sparse points than {dict(scan.min_points)} asks for"] if rejected else []
    return f"no frame of {scan.name} under {scan.reader.root} can be used: {', '.join(why)}"


def _scan_function(dataset: str) -> Callable[..., Scan]:
    from protodepth.data.arguments import BUILT_IN, dataset_names

    if dataset in BUILT_IN:
        importlib.import_module(BUILT_IN[dataset])
    if dataset in scans.names():
        return scans.get(dataset)
    if dataset in dataset_names():
        raise DataError(f"{dataset} needs no preparing: give it to the other commands as it is")
    raise UnknownNameError("dataset", dataset, dataset_names())


def _request(scan: Scan) -> dict[str, Any]:
    """What was asked for: two calls with the same request may share derived files."""
    rules = asdict(scan.rules)
    options = {k: str(v) if isinstance(v, Path) else v for k, v in scan.options.items()}
    return json.loads(
        json.dumps(
            {
                "format": FORMAT,
                "dataset": scan.name,
                "root": str(scan.reader.root.resolve()),
                "options": options,
                "rules": rules,
                "expected": dict(scan.expected),
                "derive": list(scan.derive),
            }
        )
    )


def _check_same_request(folder: Path, request: Mapping[str, Any]) -> None:
    mark = folder / REQUEST
    if mark.exists():
        claims.check_same(folder, "prepared data", read_json(mark), request, DataError)
    else:
        write_json(mark, request)


Derived = tuple[Entry, str | None, int, int]  # entry, why it is bad, maps written, maps reused


def _derive_all(scan: Scan, folder: Path, split: str, entries: EntryTable, pool: Executor | None) -> Iterator[Derived]:
    derive_entry = partial(_derive, scan.reader, scan.derive, folder, (split, scan.min_points.get(split, 0)))
    some = ([entries[i] for i in range(n, min(n + TOGETHER, len(entries)))] for n in range(0, len(entries), TOGETHER))
    for derived in cluster.in_order(pool, partial(_each, derive_entry), some):
        yield from derived


def _each(derive_entry: Callable[[Entry], Derived], entries: list[Entry]) -> list[Derived]:
    return [derive_entry(entry) for entry in entries]


def _derive(reader: FrameReader, derive: tuple[str, ...], folder: Path, rule: tuple[str, int], entry: Entry) -> Derived:
    """The entry with its slow parts replaced by files; it is read only when one of them is missing."""
    split, min_points = rule
    depths = [
        what for what in derive if what == "sparse" or (what == "truth" and ("truth" in entry or "dense" in entry))
    ]
    wanted = {what: f"{what}/{split}/{entry['id']}.png" for what in depths}
    missing = [what for what, name in wanted.items() if not (folder / name).exists()]
    why = reader.file_fault(entry)
    if why:
        return entry, why, 0, 0
    try:
        changed = _extract_images(reader, folder, entry) if "image" in derive else dict(entry)
        frame = reader({k: v for k, v in entry.items() if k not in ("neighbours", "poses")}) if missing else None
    except DataError as error:
        return entry, str(error), 0, 0
    if frame is not None:
        if (frame.sparse_depth > 0).sum() < min_points:
            return entry, TOO_FEW, 0, 0
        maps = {"sparse": frame.sparse_depth, "truth": frame.ground_truth}
        for what in missing:
            images.write_depth(folder / wanted[what], maps[what])  # type: ignore[arg-type]
    changed |= {what: f"@/{name}" for what, name in wanted.items()}
    return changed, None, len(missing), len(wanted) - len(missing)


def _extract_images(reader: FrameReader, folder: Path, entry: Entry) -> Entry:
    """Pictures out of containers that cannot be read frame by frame, byte for byte."""

    def extract(ref: str) -> str:
        name = f"image/{re.sub(r'[^A-Za-z0-9._-]+', '_', ref)}.jpg"
        if not (folder / name).exists():
            inner, inside = ref.rsplit("#", 1)
            with foreign(reader.root / inner):
                data = reader.container.image_bytes(reader.root / inner, inside)  # type: ignore[union-attr]
            write_bytes(folder / name, data)
        return f"@/{name}"

    changed = {**entry, "image": extract(entry["image"])}
    return changed | ({"neighbours": [extract(r) for r in entry["neighbours"]]} if "neighbours" in entry else {})


def _reader_json(scan: Scan) -> dict[str, Any]:
    keep = asdict(replace(scan.reader, container=None))
    keep.update(root=str(scan.reader.root.resolve()), derived=None, container=None)
    return keep


def load_manifest(folder: str | Path, *, root: str | Path | None = None, withhold: float = 0.0) -> Domain:
    """The Domain of a prepared folder.  ``root`` says where the raw files are now, if they moved."""
    folder = Path(folder)
    try:
        meta = parse_json((folder / "manifest.json").read_bytes(), folder / "manifest.json")
    except OSError as error:
        raise DataError(f"{folder}/manifest.json cannot be read ({error}): run protodepth data prepare again") from None
    if not isinstance(meta, dict):
        raise DataError(f"{folder}/manifest.json holds no manifest: run protodepth data prepare again")
    if meta.get("format") != FORMAT:
        raise DataError(f"{folder} has manifest format {meta.get('format')}, expected {FORMAT}: prepare it again")
    with reading(folder / "manifest.json"):
        return _described(folder, meta, root, withhold)


def _described(folder: Path, meta: dict[str, Any], root: str | Path | None, withhold: float) -> Domain:
    module = importlib.import_module(_module_of(meta["dataset"]))
    container: Container | None = getattr(module, "CONTAINER", None)
    stored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["reader"].items()}
    stored.update(root=Path(root) if root else Path(stored["root"]), derived=folder, container=container)
    rules: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["rules"].items()}
    scan = Scan(
        name=meta["dataset"],
        reader=FrameReader(**stored),
        rules=EvalRules(**rules),
        splits={},
        expected=meta["expected"],
        options=meta["options"],
        notes=tuple(meta.get("notes", ())),
        tally=lambda: {what: (counted, known) for what, (counted, known) in meta.get("tally", {}).items()},
    )
    tables = {s: EntryTable.open(folder / f"{s}.jsonl") for s in SPLITS}
    return _domain(scan, tables, withhold, meta["bad"])


def _module_of(dataset: str) -> str:
    from protodepth.data.arguments import BUILT_IN

    return BUILT_IN.get(dataset) or _scan_function(dataset).__module__


@datasets.register("manifest")
def _source(argument: str, **options: Any) -> Domain:
    folder, query = split_query(argument)
    given = {**query, **{k: v for k, v in options.items() if v is not None}}
    unknown = [k for k in given if k not in ("root", "withhold")]
    if unknown:
        raise UnknownNameError(f"option of the prepared folder {folder}", unknown[0], ("root", "withhold"))
    return load_manifest(folder, root=given.get("root"), withhold=float(given.get("withhold", 0.0)))
