"""The table of data sets as text."""

from meshrec.data.fetch.sources import Source


def listing(sources: dict[str, Source]) -> str:
    """A paragraph for each data set: what it is, how large, how much of it is verified, under which terms."""
    return "\n\n".join(_paragraph(source) for source in sources.values())


def _paragraph(source: Source) -> str:
    lines = [f"{source.name}  {source.title}"]
    lines.append(f"  version {source.version}, {_files(source)}, {_hashes(source)}")
    lines.append(f"  {source.licence}: {source.accept or 'nothing to accept'}  {source.licence_page}")
    lines += [f"  {line}" for text in (source.by_hand, source.note) if text for line in text.strip().splitlines()]
    return "\n".join(lines)


def _files(source: Source) -> str:
    sizes = [file.planned_bytes for file in source.files]
    known = [size for size in sizes if size is not None]
    size = f"{size_text(sum(known))}" if len(known) == len(sizes) else "of unknown size"
    return f"{len(sizes)} file{'s' * (len(sizes) > 1)}, {size}"


def _hashes(source: Source) -> str:
    known = sum(file.sha256 is not None for file in source.files)
    if known == len(source.files):
        return "sha256 known"
    return (
        f"sha256 of {known} known, the others' recorded at the first download"
        if known
        else "sha256 recorded at the first download"
    )


def size_text(size: float) -> str:
    """`4.6 GB`: decimal units, as disks are sold."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} bytes"
