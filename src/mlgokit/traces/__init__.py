"""LLVM's training log as arrays, and back."""

from mlgokit.traces.log import ContextSpan, Log, iter_log, read_log, read_log_bytes, render_log
from mlgokit.traces.record import Header

__all__ = ["ContextSpan", "Header", "Log", "iter_log", "read_log", "read_log_bytes", "render_log"]
