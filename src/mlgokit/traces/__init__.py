"""LLVM's training log as arrays, and back."""

from mlgokit.traces.item import Header
from mlgokit.traces.log import ContextSpan, Log, iter_log, read_log, read_log_bytes, render_log, write_log

__all__ = ["ContextSpan", "Header", "Log", "iter_log", "read_log", "read_log_bytes", "render_log", "write_log"]
