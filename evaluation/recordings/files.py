"""The files in a recording's directory: CSV or Parquet, one or several of a kind."""

import codecs
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpuvigil.store.exporter_names import EXPORTERS

from .layout import FILES, SUFFIXES, TELEMETRY, names
from .problems import BadRecording, Problems, lines_of, meant, reason
from .values import Raw

KERNEL, INVENTORY = "kernel", "inventory.jsonl"
_TIMES = ("timestamp", "time", "datetime", "ts")
# Torn lines from a crash or two are no more than this share.
_MOST_TORN = 0.01
_LOOKED_AT = 1_000_000  # bytes of a file
_PACKED = frozenset({".gz", ".zst", ".xz", ".bz2", ".zip"})


def kinds(directory: Path, problems: Problems) -> dict[str, list[Path]]:
    """Return the files of each kind, as `gpu.csv`, `gpu-2.csv`, `gpu/any.csv`; BadRecording for no directory."""
    if directory.is_file():
        raise BadRecording(f"{directory}: is a file: name the directory that it is in")
    try:
        found = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BadRecording(f"{directory}: {reason(error)}") from None
    files: dict[str, list[Path]] = {}
    for path in found:
        kind = (path.name if path.is_dir() else path.stem).lower()
        kind = kind if kind in FILES else kind.partition("-")[0]
        own = [it for it in sorted(path.iterdir()) if it.is_file()] if path.is_dir() else [path]
        if kind in FILES:
            files.setdefault(kind, []).extend(it for it in own if _suffix(it) in SUFFIXES)
        for one in own if kind in FILES else [path]:
            _note_unused(one, kind, problems)
    return files


def without_numbers(directory: Path, files: Mapping[str, list[Path]]) -> str:
    """Return the reason why a recording has no telemetry, as far as it can be seen."""
    empty = [path for kind in TELEMETRY for path in files.get(kind, ())]
    if empty:
        return f"{empty[0]}: has no rows"
    below = sorted(it.parent for it in directory.glob("*/*") if it.stem.lower() in TELEMETRY)
    if below:
        return f"{directory}: has no numbers: did you mean {below[0]}?"
    return (
        f"{directory}: has no numbers: it needs a gpu.csv, port.csv or node.csv"
        " ('gpuvigil replay --template DIR' writes examples)"
    )


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _note_unused(path: Path, kind: str, problems: Problems) -> None:
    if path.name in {INVENTORY, "README.md"} or (kind in FILES and _is_used(path, kind)):
        return
    near = meant(kind, FILES)
    if _suffix(path) in _PACKED:
        problems.error(path, "is packed: unpack it first")
    elif kind == Path(INVENTORY).stem:
        problems.error(path, f"is none of the files of a recording; did you mean {INVENTORY}?")
    elif near and _suffix(path) in SUFFIXES:
        problems.error(path, f"is none of the files of a recording{near}")
    else:
        problems.note(path, "is none of the files of a recording: not read")


def _is_used(path: Path, kind: str) -> bool:
    return _suffix(path) in SUFFIXES or (kind == KERNEL and path.suffix == ".log")


def raws(kind: str, paths: list[Path], problems: Problems) -> Iterator[Raw]:
    """Yield each file with the columns that the layout knows, under their layout names."""
    for path in paths:
        try:
            raw = _read(path)
        except OSError as error:
            problems.error(path, reason(error))
            continue
        except (ValueError, pa.ArrowException) as error:
            problems.error(path, _why(error))
            continue
        if raw.torn:
            _tell_torn(raw, problems)
        if _is_long(raw):
            text = (
                "has a metric and a value in each row: give each metric a column of its own first"
            )
            problems.error(path, f"{text} (pandas: pivot_table)")
            continue
        named = _named(kind, raw, problems)
        if named is not None:
            yield named


def _why(error: Exception) -> str:
    """Return why a file cannot be read: in the reader's words, except for common mistakes."""
    said = str(error).splitlines()[0]
    if "invalid UTF8" in said or isinstance(error, UnicodeDecodeError):
        return "is not UTF-8: convert it (iconv -f ISO-8859-1 -t UTF-8)"
    return "is no Parquet file" if "magic bytes not found" in said else said


def _is_long(raw: Raw) -> bool:
    """Return whether each row has the name of one metric, and its value."""
    columns = set(raw.table.column_names)
    return "value" in columns and bool(_LONG & columns)


def _tell_torn(raw: Raw, problems: Problems) -> None:
    """Note a few torn lines, as after a crash, which are left out; report an error for more."""
    first = next((line for number, line in lines_of(raw.path) if number in raw.torn), None)
    text = f"{len(raw.torn)} lines have too few or too many columns"
    if len(raw.torn) > _MOST_TORN * (len(raw.table) + len(raw.torn)) + 1:
        problems.error(raw.path, text, first)
    else:
        problems.note(raw.path, f"{text}: left out", first)


def _check_line_ends(path: Path) -> None:
    """Raise ValueError for a carriage return within a line: readers differ in whether it ends the line."""
    with path.open("rb") as file:
        text = file.read(_LOOKED_AT)
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("is UTF-16, as PowerShell writes it: convert it to UTF-8")
    number = text.find(b"\r", 0, -1)
    while number >= 0 and text[number + 1 : number + 2] == b"\n":
        number = text.find(b"\r", number + 1, -1)
    if number >= 0 and b"\n" in text:
        raise ValueError(
            "has a carriage return within a line, as awk leaves it of a file with Windows line ends:"
            " run it through tr -d '\\r'"
        )


def _read(path: Path) -> Raw:
    if _suffix(path) == ".parquet":
        with path.open("rb") as file:
            return Raw(path=path, table=pyarrow.parquet.read_table(file))
    _check_line_ends(path)
    torn: list[int] = []

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        torn.append(row.number)
        return "skip"

    with path.open(encoding="utf-8-sig", errors="replace") as text:
        header = text.readline()
    separator = max((header.count(one), one) for one in "\t;,")[1]
    parse = pyarrow.csv.ParseOptions(
        delimiter=separator, invalid_row_handler=leave_out, newlines_in_values='"' in header
    )
    with pyarrow.csv.open_csv(path, parse_options=parse) as reader:
        columns = reader.schema.names
    torn.clear()
    table = pyarrow.csv.read_csv(
        path,
        parse_options=parse,
        read_options=pyarrow.csv.ReadOptions(use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in columns}, strings_can_be_null=False
        ),
    )
    return Raw(path=path, table=_without_headers(table), torn=frozenset(torn))


def _without_headers(table: pa.Table) -> pa.Table:
    """Return the table without repeated headers, as in a log that several runs were appended to."""
    if not table.num_columns:
        return table
    pairs = zip(table.columns, table.column_names, strict=True)
    again = (pc.equal(pc.utf8_trim_whitespace(column), name.strip()) for column, name in pairs)
    return table.filter(pc.invert(reduce(pc.and_, again)))


def _named(kind: str, raw: Raw, problems: Problems) -> Raw | None:
    """Return the columns of the layout, or None after an error; a missing or misspelt column is an error."""
    known = names(kind)
    chosen: dict[str, int] = {}
    for number, given in enumerate(raw.table.column_names):
        name = given.strip()
        if name in _TIMES and "at" in known and "at" not in raw.table.column_names:
            name = "at"
        if name in chosen:
            problems.error(raw.path, "stands twice in the header", 1, name)
        elif name in known:
            chosen[name] = number
        else:
            _unknown(kind, raw, name, problems)
    missing = [it.name for it in FILES[kind] if it.needed and it.name not in chosen]
    if kind in {"gpu", "nvlink"} and not {"uuid", "index"} & set(chosen):
        missing.append("uuid or index")
    for name in missing:
        problems.error(
            raw.path, f"has no column {name}; it has {', '.join(raw.table.column_names)}"
        )
    if missing:
        return None
    table = raw.table.select(list(chosen.values())).rename_columns(list(chosen))
    return Raw(path=raw.path, table=table, torn=raw.torn)


def _unknown(kind: str, raw: Raw, name: str, problems: Problems) -> None:
    path, given = raw.path, set(raw.table.column_names)
    line = 1 if _suffix(path) == ".csv" else None
    foreign = _FOREIGN.get(name)
    word = next((it for it in _WORDS.get(name.lower(), ()) if it in names(kind)), None)
    if word == "index" and "uuid" in given:
        word = None  # the GPUs are already named by UUID
    if (instead := _instead(name)) is not None:
        problems.note(path, f"is ignored: {instead}", line, name)
    elif foreign is not None and foreign[0] not in given:
        field, times = foreign
        factor = "" if times == 1 else f", times {times:.15g}"
        problems.error(path, f"is an exporter's name: call it {field}{factor}", line, name)
    elif word is not None and word not in given:
        problems.error(path, f"is unknown; did you mean {word}?", line, name)
    elif foreign is None and word is None and (near := meant(name, names(kind))):
        problems.error(path, f"is unknown{near}", line, name)
    else:
        problems.note(path, "is no column of the layout: ignored", line, name)


def _instead(name: str) -> str | None:
    """Return where the layout has what a column says that no field of the catalogue can hold."""
    if (file := _OF_RECORDS.get(name)) is not None:
        return f"what it says belongs in {file}.csv"
    is_part = name.startswith(_OF_REASONS) and not name.endswith(".active")
    return "clocks_event_reasons.active has all of these reasons" if is_part else None


# Columns beside numbers that say what happened, or who held a GPU: dcgm-exporter's metric and labels.
_OF_RECORDS: dict[str, str] = {
    "DCGM_FI_DEV_XID_ERRORS": "events",
    **dict.fromkeys(("hpc_job", "pod"), "jobs"),
}
# nvidia-smi has a column for each reason, too.
_OF_REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
# Names that people make up, and the layout's names for them: the first that the file may have.
_WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("power", "watts", "power_w"), ("power_watts",)),
    **dict.fromkeys(("temp", "temperature", "gpu_temp", "temp_c"), ("temperature_celsius",)),
    **dict.fromkeys(("util", "utilization", "gpu_util", "load"), ("utilization_percent",)),
    **dict.fromkeys(("memory", "mem", "mem_used"), ("memory_used_bytes",)),
    **dict.fromkeys(("clock", "sm_clock", "mhz"), ("sm_clock_hertz",)),
    **dict.fromkeys(("server", "machine", "nodename", "instance"), ("node",)),
    **dict.fromkeys(("gpu", "gpu_id", "gpu_index", "id"), ("index", "gpu")),
    **dict.fromkeys(("job", "job_id", "jobid"), ("holder",)),
    **dict.fromkeys(("start", "start_time", "begin"), ("started_at", "from")),
    **dict.fromkeys(("end", "end_time", "until"), ("ended_at", "to")),
    **dict.fromkeys(("fault", "label"), ("cause",)),
    **dict.fromkeys(("message", "text"), ("line",)),
}


# Names of common tools: the layout's field, and the factor from the tool's unit to the field's.
_NVIDIA_SMI: dict[str, tuple[str, float]] = {
    "hostname": ("node", 1),
    "Hostname": ("node", 1),
    "UUID": ("uuid", 1),
    "name": ("model", 1),
    "gpu_uuid": ("uuid", 1),
    "modelName": ("model", 1),
    "pci.bus_id": ("pci_address", 1),
    "utilization.gpu": ("utilization_percent", 1),
    "utilization.memory": ("memory_utilization_percent", 1),
    "memory.used": ("memory_used_bytes", 1048576),
    "memory.total": ("memory_total_bytes", 1048576),
    "power.draw": ("power_watts", 1),
    "temperature.gpu": ("temperature_celsius", 1),
    "temperature.memory": ("memory_temperature_celsius", 1),
    "clocks.sm": ("sm_clock_hertz", 1e6),
    "clocks.current.sm": ("sm_clock_hertz", 1e6),
    "clocks.mem": ("memory_clock_hertz", 1e6),
    "enforced.power.limit": ("power_limit_watts", 1),
    "clocks_event_reasons.active": ("clock_event_reasons", 1),
    "clocks_throttle_reasons.active": ("clock_event_reasons", 1),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected_errors", 1),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_errors", 1),
    "pcie.link.gen.current": ("pcie_generation", 1),
    "pcie.link.gen.gpucurrent": ("pcie_generation", 1),
    "pcie.link.gen.max": ("pcie_generation_max", 1),
    "pcie.link.width.current": ("pcie_width", 1),
    "pcie.link.width.max": ("pcie_width_max", 1),
    "clocks.max.sm": ("sm_clock_max_hertz", 1e6),
    "fan.speed": ("fan_speed_percent", 1),
    "power.limit": ("power_limit_requested_watts", 1),
    "power.default_limit": ("power_limit_default_watts", 1),
    "pstate": ("performance_state", 1),
    "clocks.current.memory": ("memory_clock_hertz", 1e6),
    "clocks.max.memory": ("memory_clock_max_hertz", 1e6),
    "clocks.max.mem": ("memory_clock_max_hertz", 1e6),
    "ecc.mode.current": ("ecc_mode", 1),
    "mig.mode.current": ("mig_mode", 1),
    "remapped_rows.pending": ("remap_pending", 1),
    "remapped_rows.failure": ("remap_failure", 1),
    "remapped_rows.correctable": ("remapped_rows_corrected", 1),
    "remapped_rows.uncorrectable": ("remapped_rows_uncorrected", 1),
    "retired_pages.pending": ("retired_pages_pending", 1),
}
# Older names of DCGM (dcgm_fields.h), which sites still export.
_OLD_DCGM: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_event_reasons", 1),
}
# Telegraf's plugin nvidia_smi: README.md of plugins/inputs/nvidia_smi, read 2026-11.
_TELEGRAF: dict[str, tuple[str, float]] = {
    "host": ("node", 1),
    "utilization_gpu": ("utilization_percent", 1),
    "utilization_memory": ("memory_utilization_percent", 1),
    "memory_used": ("memory_used_bytes", 1048576),
    "memory_total": ("memory_total_bytes", 1048576),
    "power_draw": ("power_watts", 1),
    "power_limit": ("power_limit_watts", 1),
    "temperature_gpu": ("temperature_celsius", 1),
    "clocks_current_sm": ("sm_clock_hertz", 1e6),
    "clocks_current_memory": ("memory_clock_hertz", 1e6),
    "pcie_link_gen_current": ("pcie_generation", 1),
    "pcie_link_width_current": ("pcie_width", 1),
}
# nvidia_gpu_exporter: METRICS.md, read 2026-11.
_NVIDIA_GPU_EXPORTER: dict[str, tuple[str, float]] = {
    "nvidia_smi_utilization_gpu_ratio": ("utilization_percent", 100),
    "nvidia_smi_utilization_memory_ratio": ("memory_utilization_percent", 100),
    "nvidia_smi_memory_used_bytes": ("memory_used_bytes", 1),
    "nvidia_smi_memory_total_bytes": ("memory_total_bytes", 1),
    "nvidia_smi_power_draw_watts": ("power_watts", 1),
    "nvidia_smi_enforced_power_limit_watts": ("power_limit_watts", 1),
    "nvidia_smi_temperature_gpu": ("temperature_celsius", 1),
    "nvidia_smi_clocks_current_sm_clock_hz": ("sm_clock_hertz", 1),
    "nvidia_smi_clocks_max_sm_clock_hz": ("sm_clock_max_hertz", 1),
    "nvidia_smi_pcie_link_gen_current": ("pcie_generation", 1),
    "nvidia_smi_pcie_link_gen_max": ("pcie_generation_max", 1),
    "nvidia_smi_pcie_link_width_current": ("pcie_width", 1),
    "nvidia_smi_pcie_link_width_max": ("pcie_width_max", 1),
}
_LONG = {"metric", "__name__", "name", "metric_name"}
_FOREIGN: dict[str, tuple[str, float]] = {
    **_TELEGRAF,
    **_NVIDIA_GPU_EXPORTER,
    **{
        column.metric: (field, column.times)
        for exporter in EXPORTERS
        for field, column in exporter.columns.items()
    },
    **_OLD_DCGM,
    **_NVIDIA_SMI,
    # nvidia-smi adds the unit to the header.
    **{
        f"{name} [{unit}]": found
        for name, found in _NVIDIA_SMI.items()
        for unit in ("%", "MiB", "W", "MHz")
    },
}
