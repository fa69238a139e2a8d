"""What can go wrong with the journal. Part of `store`; imports nothing of ours.

StoreError
├── OpenRefused                  nothing was changed; exit code 2
│   ├── JournalBusy              another daemon, or another program, holds the journal
│   ├── FolderUnusable           the state folder cannot be made, entered or written
│   ├── FolderInsecure           somebody else could change what is in it
│   ├── NetworkFileSystem        its locks and its fsync cannot be relied on
│   ├── IdentityUnreadable       `CURRENT` is not what effectd writes
│   ├── IdentityMissing          a journal without `CURRENT`
│   ├── BackupNotAlone           a backup without `CURRENT`, and something of another journal beside it
│   ├── JournalMissing           `CURRENT` without its journal
│   ├── JournalEmptied           the file has no bytes
│   ├── JournalTruncated         the file is shorter than it says
│   ├── NotAJournal              not SQLite, or another program's
│   ├── JournalForeign           a journal, but not this folder's
│   ├── JournalNewer             written by a newer effectd
│   ├── JournalDamaged           its content contradicts itself
│   ├── DigestKeyMissing         the key of keyed digests is gone, and the journal has such digests
│   ├── DigestKeyWrong           the key is another one, or no key
│   ├── WalMissing               the file was copied, or restored, without its `-wal`
│   ├── WalForeign               the `-wal` beside it belongs to another journal
│   ├── WalDamaged               the `-wal` is broken before its end
│   └── SettingNotTaken          SQLite did not take a setting that durability rests on
├── NoRoomForGeneration          after a failed fsync: no room to copy the journal; exit code 71
├── JournalFailed                the journal cannot be relied on any more; exit code 70
├── NoJournal                    a look at a folder that has never had one
├── BackupRefused                no backup was made
│   ├── BackupExists             something has its name
│   ├── BackupUnwritable         the operating system refused
│   ├── BackupEmpty              there is no journal yet
│   └── BackupDamaged            the journal does not hold what it says
├── NotMended                    the events do not lead to a sound journal; nothing was changed
├── ScratchFailed                no place for what is made in a temporary file beside the journal
├── JournalClosed                asked after the journal was closed
├── QueueFull                    too many lazy writes wait
└── ImpossibleEvent              an event that contradicts the journal: a bug of ours
"""

from pathlib import Path
from typing import ClassVar


class StoreError(Exception):
    """Any error of the journal. `exit_code` is the process's, where it ends the daemon."""

    exit_code: ClassVar[int] = 1


class OpenRefused(StoreError):
    """The journal cannot be opened as it stands. Nothing in the state folder was changed."""

    exit_code = 2

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        self.path = path
        self.problem = problem
        self.advice = advice
        super().__init__(f"{path}: {problem}. {advice}")


class JournalBusy(OpenRefused):
    """Another process has the journal: another daemon, whose `pid` may be known, or another program."""

    def __init__(self, path: Path, *, pid: int | None, daemon: bool = True) -> None:
        self.pid = pid
        self.daemon = daemon
        who = f"another effectd{f' (process {pid})' if pid else ''}" if daemon else "another program"
        advice = (
            "Stop it first, or give this one a state_dir of its own"
            if daemon
            else "Close whatever has the file open (an sqlite3 shell, a backup), then start again"
        )
        super().__init__(path, f"{who} uses this journal", advice + ".")


class FolderUnusable(OpenRefused):
    """The operating system refused something that the state folder is needed for.

    Where that was about a file in it, `path` is the file's.
    """

    def __init__(self, folder: Path, error: OSError) -> None:
        self.errno = error.errno
        named = Path(error.filename) if isinstance(error.filename, str | Path) else folder
        path = named if folder in named.parents else folder
        what = "a folder" if path == folder else "a file"
        super().__init__(
            path,
            f"cannot be used: {error.strerror or error}",
            f"Make it {what} of this user, on a disk that can be written, or name another as state_dir.",
        )


class FolderInsecure(OpenRefused):
    """Somebody else owns or can change the folder, or a file in it."""

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        super().__init__(path, problem, advice)


class NetworkFileSystem(OpenRefused):
    """The state folder is on a network or FUSE file system."""

    def __init__(self, path: Path, kind: str) -> None:
        self.kind = kind
        super().__init__(
            path,
            f"is on a file system of type {kind}, whose locks and fsync cannot be relied on",
            "Put state_dir on a local disk, or set journal.allow_network_fs = true and accept the risk.",
        )


class IdentityUnreadable(OpenRefused):
    """`CURRENT` is damaged, or was written by something else."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            path,
            f"does not name a journal: {problem}",
            "Restore the whole state folder from a backup, or move it away to begin a new history.",
        )


class IdentityMissing(OpenRefused):
    """A journal stands there, and nothing says that it is this folder's."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "a journal without the file CURRENT beside it: it was copied here, or CURRENT was lost",
            "What 'effectd backup' made becomes the journal when the daemon starts; else restore the whole "
            "state folder, or move the journal away to begin a new history.",
        )


class BackupNotAlone(OpenRefused):
    """A backup was put where something of another journal stands."""

    def __init__(self, path: Path, beside: tuple[str, ...]) -> None:
        self.beside = beside
        super().__init__(
            path,
            f"a backup, and beside it {', '.join(beside)} of another journal",
            "Restore a backup into an empty state folder: move everything else away; nothing was changed.",
        )


class JournalMissing(OpenRefused):
    """The folder had a journal, and has none now: its history must not begin again unnoticed."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "the journal that CURRENT names is missing",
            "Put it back, or move the whole state folder away to begin a new history "
            "(the control plane then settles what the lost one may have executed).",
        )


class JournalEmptied(OpenRefused):
    """The file is there, without a byte."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "the journal is empty: something has emptied the file",
            "Restore it from a backup, or move the whole state folder away to begin a new history.",
        )


class JournalTruncated(OpenRefused):
    """The file ends before its content does."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            path,
            f"the journal is cut short or its first page is damaged ({detail})",
            "Check the disk, then restore the file from a backup; it was left as it is.",
        )


class NotAJournal(OpenRefused):
    """The file is something else."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            path,
            f"is not a journal of effectd: {detail}",
            "Move that file away and restore the journal from a backup; it was left as it is.",
        )


class JournalForeign(OpenRefused):
    """A journal of effectd, but another one than `CURRENT` names."""

    def __init__(self, path: Path, *, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(
            path,
            f"is another machine's or folder's journal: its file_id is {found}, and CURRENT names {expected}",
            "Put the right file back; to move a journal, move its whole state folder.",
        )


class JournalNewer(OpenRefused):
    """The schema is newer than this program."""

    def __init__(self, path: Path, *, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            path,
            f"was written by a newer effectd: its schema is {found}, and this program knows {known}",
            "Start the newer effectd; journals are not downgraded.",
        )


class JournalDamaged(OpenRefused):
    """The content contradicts itself: bits were flipped, or parts of two histories were mixed."""

    def __init__(self, path: Path, detail: str) -> None:
        self.detail = detail
        super().__init__(
            path,
            f"the journal is damaged: {detail}",
            "Check the disk, and restore the file from a backup; it was left as it is. Where it can still be "
            "read, 'effectd verify' says what else is wrong.",
        )


class DigestKeyMissing(OpenRefused):
    """The journal names digests under a key that is not there any more."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "the key that this journal's digests of secrets were made with is missing",
            "Put it back from a backup: without it, a command that is delivered again is not recognised. "
            "Else move the whole state folder away to begin a new history.",
        )


class DigestKeyWrong(OpenRefused):
    """The file is no key, or another folder's."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            path,
            f"the key of digests {problem}",
            "Put the right one back from a backup; it was left as it is, and nothing was recorded.",
        )


class WalMissing(OpenRefused):
    """Commits were in a `-wal` that is not there any more."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "the journal was in use when it was last seen, and its -wal file is missing or empty: "
            "it was copied or restored without it, and its newest commits are gone",
            "Put the -wal file back beside it, or restore both from one backup.",
        )


class WalForeign(OpenRefused):
    """The `-wal` would put another journal's content into this one."""

    def __init__(self, path: Path, *, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(
            path,
            f"the -wal file belongs to another journal ({found} instead of {expected})",
            "Move it away and put the right one back; neither file was changed.",
        )


class WalDamaged(OpenRefused):
    """SQLite would silently drop commits behind the damage."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            path,
            f"the -wal file is damaged ({detail}): commits behind that point would be lost",
            "Check the disk, and restore the journal and its -wal from one backup; neither was changed.",
        )


class SettingNotTaken(OpenRefused):
    """A pragma reads back otherwise than it was set."""

    def __init__(self, path: Path, *, name: str, wanted: object, found: object) -> None:
        self.name = name
        super().__init__(
            path,
            f"SQLite did not take {name} = {wanted} (it reads back {found})",
            "The file system may not support it: put state_dir on a local disk.",
        )


class NoRoomForGeneration(StoreError):
    """The journal must be copied before it is used, and there is no room.

    An fsync had failed, or its projections are to be made again.
    """

    exit_code = 71

    def __init__(self, path: Path, *, needed_bytes: int, free_bytes: int) -> None:
        self.path = path
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"{path}: the journal must be copied first, as a write to the disk had failed, or as a rebuild "
            f"was asked for; that needs {needed_bytes} bytes, and {free_bytes} are free. "
            "Make room, then try again; nothing was changed."
        )


class JournalFailed(StoreError):
    """The journal broke while in use: nothing more is written, and no outcome comes from memory.

    `ambiguous` is true where a commit may, or may not, be on the disk: only a restart can read which.
    """

    exit_code = 70

    def __init__(self, during: str, detail: str, *, ambiguous: bool = False) -> None:
        self.during = during
        self.detail = detail
        self.ambiguous = ambiguous
        super().__init__(
            f"the journal failed during {during}: {detail}. Nothing more is written; "
            "check the disk and its room, then start effectd again: it reads what is true from the file."
        )


class NoJournal(StoreError):
    """There is nothing to look at: no daemon has ever run with this folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path}: this state folder has no journal yet. Start the daemon first, or look whether "
            "driver.state_dir names the folder that you mean."
        )


class BackupRefused(StoreError):
    """No backup was made, and nothing is left of the attempt."""

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}. {advice}")


class BackupExists(BackupRefused):
    """Something stands where the backup was to be."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "is there already, and is never overwritten", "Choose another name.")


class BackupUnwritable(BackupRefused):
    """It could not be written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            path,
            f"the backup could not be made ({detail})",
            "Choose a folder that effectd's user can write (under systemd: within the state folder), with "
            "room for the whole journal.",
        )


class BackupEmpty(BackupRefused):
    """There is nothing to copy."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "this state folder has no journal yet", "Start the daemon first.")


class BackupDamaged(BackupRefused):
    """What was copied does not hold what it says."""

    def __init__(self, path: Path, subject: str, problem: str, count: int) -> None:
        self.count = count
        super().__init__(
            path,
            f"no backup was made: the journal is damaged ({subject}: {problem}; {count} findings)",
            "Run 'effectd verify', and keep the backups that you have.",
        )


class NotMended(StoreError):
    """The projections cannot be made again: what the events say is itself damaged. Nothing was changed."""

    def __init__(self, path: Path, subject: str, problem: str) -> None:
        self.path = path
        self.subject = subject
        self.problem = problem
        super().__init__(
            f"{path}: the events themselves are damaged ({subject}: {problem}), and nothing was changed. "
            "Copy the state folder away, check the disk, and restore the newest backup that is sound."
        )


class ScratchFailed(StoreError):
    """What a look makes beside the journal cannot be made: the temporary database does not work."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(
            f"the temporary file that this look needs does not work: {detail}. "
            "The journal is as it was. Make room in the temporary folder, or name another one in TMPDIR."
        )


class JournalClosed(StoreError):
    """The journal was closed, or is being closed."""

    def __init__(self) -> None:
        super().__init__("the journal is closed: effectd is stopping; ask again after its restart")


class QueueFull(StoreError):
    """More lazy writes wait than `later_max`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} lazy writes already wait for the journal's next commit; try again after it"
        )


class ImpossibleEvent(StoreError):
    """An event that contradicts what the journal holds. Nothing was written."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem
        super().__init__(
            f"event {kind} was not recorded: {problem}. "
            "This is a bug in effectd: please report it with the output of 'effectd show'"
        )
