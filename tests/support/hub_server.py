"""A stand-in for the hub's HTTP interface: files of a directory, OWNER/REPO/REVISION/FILE."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.stand_in import Asked, Reply, StandIn

__all__ = ["HubServer"]


class HubServer(StandIn):
    """Answers /OWNER/REPO/resolve/REVISION/FILE; `asked` are the requests so far."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._directory = directory

    def reply(self, asked: Asked) -> Reply:
        """The file, or the code that says what of its path there is not."""
        self.asked.append(f"{asked.method} {asked.path}")
        parts = [*asked.path.strip("/").split("/", 4), *[""] * 5]
        owner, repo, _, revision, name = parts[:5]
        root = self._directory / owner / repo
        path = root / revision / name
        headers = {"X-Repo-Commit": hashlib.sha1(revision.encode()).hexdigest()}
        code = None if root.is_dir() else "RepoNotFound"
        if code is None and not path.parent.is_dir():
            code = "RevisionNotFound"
        if code is None and not path.is_file():
            code = "EntryNotFound"
        if code is not None:
            return Reply(404, headers=headers | {"X-Error-Code": code})
        data = path.read_bytes()
        return Reply(200, data, headers | {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'})
