"""Changes to a table's files that are collected to become one commit.

A file that is written is kept in memory, past a size on disk, until it is complete; a file that never is
becomes nothing.
"""

from __future__ import annotations

import errno
import io
import logging
import sys
import warnings
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, cast

from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.calls import CopiedFile
from penstock.formats.files.lake.paths import FilesPath
from penstock.formats.files.lake.pending_changes import Data
from penstock.model.keys import Key

logger = logging.getLogger("penstock")

IN_MEMORY_MAX_BYTES: Final = 8 * 1024 * 1024
"""A file that is written takes at most so much of it; a larger one is on disk meanwhile."""


class BatchTarget(NamedTuple):
    """What a commit is made to."""

    key: Key
    branch: str


class FileBatch:
    """The changes that one commit makes to the files of one table on one branch."""

    def __init__(self) -> None:
        self.target: BatchTarget | None = None
        self.puts: dict[str, Data] = {}
        self.new: set[str] = set()
        """Those of them that must not be there before."""
        self.copies: dict[str, CopiedFile] = {}
        self.sources: dict[str, FileEntry] = {}
        """What was found where files are copied from."""
        self.moved: dict[str, FileEntry] = {}
        """Files that go because they are elsewhere then: they must still be these."""
        self.removed: dict[str, None] = {}
        self.replaced: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.puts or self.copies or self.removed or self.replaced)

    def require_target(self, target: BatchTarget) -> None:
        """Set the table that the commit changes; ``OSError`` if it is another one than before."""
        if self.target is not None and self.target != target:
            raise OSError(
                errno.EXDEV,
                f"cannot change '{target.key}' on '{target.branch}' in the commit that changes "
                f"'{self.target.key}' on '{self.target.branch}': use a commit for each",
            )
        self.target = target

    def put_file(self, target: BatchTarget, path: str, data: Data, *, is_new: bool = False) -> None:
        self.require_target(target)
        self._discard_pending(path)
        self.puts[path] = data
        if is_new:
            self.new.add(path)

    def copy_file(self, target: BatchTarget, copied: CopiedFile, entry: FileEntry) -> None:
        self.require_target(target)
        if copied.source in self.puts and copied.key is None:
            raise OSError(
                errno.EBUSY, f"'{copied.source}' is written by the same commit, so it cannot be copied yet"
            )
        self._discard_pending(copied.path)
        self.copies[copied.path] = copied
        self.sources[copied.source] = entry

    def remove_file(self, target: BatchTarget, path: str, moved: FileEntry | None = None) -> None:
        """Let a file go that is there, unless it goes with its folder."""
        self.require_target(target)
        self._discard_pending(path)
        if path.startswith(tuple(self.replaced)):
            return
        self.removed[path] = None
        if moved is not None:
            self.moved[path] = moved

    def remove_folder(self, target: BatchTarget, prefix: str) -> None:
        """Let all go that is below a folder when the commit has its turn, and what was to be put there."""
        self.require_target(target)
        for path in [*self.puts, *self.copies, *self.removed]:
            if path.startswith(prefix):
                self._discard_pending(path)
        self.replaced[prefix] = None

    def _discard_pending(self, path: str) -> None:
        """What was to become of a path: something else is now."""
        self.puts.pop(path, None)
        self.new.discard(path)
        self.copies.pop(path, None)
        self.removed.pop(path, None)
        self.moved.pop(path, None)


class BufferedFile(io.BufferedIOBase):
    """A file that is being written. ``close`` hands it on, once; ``discard`` lets it never have been.

    It is discarded too if it is closed because of an exception, or never closed.
    """

    def __init__(self, path: FilesPath, mode: str, on_close: Callable[[BinaryIO], None]) -> None:
        self.path, self.mode = path.replace_path(path.path), mode
        self._done = on_close
        spool = SpooledTemporaryFile(max_size=IN_MEMORY_MAX_BYTES)  # noqa: SIM115
        self._data = cast("BinaryIO", spool)
        self._opened_under = sys.exception()
        self._is_over = False

    @property
    def closed(self) -> bool:
        return self._is_over

    @property
    def name(self) -> str:
        return self.path

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._require_open()
        return self._data.write(data)

    def tell(self) -> int:
        self._require_open()
        return self._data.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._require_open()
        return self._data.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        self._require_open()
        return self._data.truncate(size)

    def flush(self) -> None:
        """Nothing: what is not complete is nowhere."""

    def close(self) -> None:
        """Hand the file on, unless an exception that came after it was opened may be why it is closed.

        Wrappers for text and compression close a file without a word on why, also when a block ends with an
        exception. So it is discarded while any such exception is handled, with a warning: an error in its
        place would hide the exception that matters.
        """
        if self._is_over:
            return
        now = sys.exception()
        if now is not None and now is not self._opened_under:
            self.discard()
            self._warn_of_discarded_file(
                f"it was closed while {type(now).__name__} was handled", RuntimeWarning
            )
            return
        self._is_over = True
        try:
            self._data.seek(0)
            self._done(self._data)
        except BaseException:
            self._data.close()
            raise

    def commit(self) -> None:
        """Called at the end of a transaction of fsspec; ``OSError`` for a file that is still written to."""
        if not self._is_over:
            raise OSError(errno.EBUSY, f"'{self.path}' is still being written; close it inside the block")

    def discard(self) -> None:
        """Let it never have been written."""
        self._is_over = True
        self._data.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # Otherwise Python would close it, which hands it on.
        if not getattr(self, "_is_over", True):
            self.abandon_file()

    def abandon_file(self) -> None:
        """Nobody closed it: it was never written, and that is told."""
        self.discard()
        self._warn_of_discarded_file("the file was never closed", ResourceWarning)

    def _warn_of_discarded_file(self, why: str, kind: type[Warning]) -> None:
        message = f"'{self.path}' was discarded: {why}"
        logger.warning(message)
        warnings.warn(message, kind, stacklevel=3)

    def _require_open(self) -> None:
        if self._is_over:
            raise ValueError(f"'{self.path}' is closed")


class WrittenText(io.TextIOWrapper):
    """A text file that is being written. If it is never closed it is discarded, as a binary one is."""

    def __init__(self, file: BufferedFile | CompressedFile, **how: Any) -> None:
        super().__init__(cast("BinaryIO", file), **how)
        self._below = file

    def __del__(self) -> None:
        # Otherwise Python would close it, and with it the file.
        if not self.closed:
            self._below.abandon_file()


class CompressedFile(io.BufferedIOBase):
    """A file that is compressed while it is written, which closes with its compressor.

    A compressor does not close the file that it writes to, so this class does.
    """

    def __init__(self, file: BufferedFile, compressor: BinaryIO) -> None:
        self._file, self._compressor = file, compressor

    @property
    def closed(self) -> bool:
        return self._file.closed

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        """As the compressor says: text in UTF-16 has its mark only where a beginning can be told."""
        return self._compressor.seekable()

    def tell(self) -> int:
        return self._compressor.tell()

    def write(self, data: Any) -> int:
        return self._compressor.write(data)

    def close(self) -> None:
        if not self.closed:
            self._compressor.close()
            self._file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._compressor.close()
            self._file.discard()

    def abandon_file(self) -> None:
        self._file.abandon_file()

    def __del__(self) -> None:
        """Do nothing: the inner file reports that it was never closed."""
