"""A real gateway whose configuration a test writes anew, and asks it to read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway
from tests.support.local_http import LOCAL

__all__ = ["ReloadSite"]

BODY: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}


class ReloadSite:
    """A gateway whose file a test writes anew; it does not watch it unless told so."""

    def __init__(self, directory: Path, engine: ScriptedEngine, *arguments: str) -> None:
        self.engine = engine
        self.path = directory / "mileage.toml"
        self.engines = (
            f'[[engines]]\nkind = "vllm"\nname = "a"\nurl = "{engine.url}"\n'
            "health_interval_s = 0.2\nscrape_interval_s = 0.2\n"
        )
        self.gateway = Gateway(directory, *(arguments or ("--no-watch",)), config=self.text(""))

    def text(self, sections: str) -> str:
        return f"{sections}\n{self.engines}"

    def write(self, sections: str) -> None:
        """Put another file in its place, as editors do."""
        draft = self.path.with_suffix(".new")
        draft.write_text(self.text(sections))
        draft.replace(self.path)

    def post(self, path: str = "/api/v1/config/reload", **headers: str) -> httpx.Response:
        token = Path(self.gateway.listening.admin_token_file or "").read_text().strip()
        fields = {"authorization": f"Bearer {token}", **headers}
        return httpx.post(f"{self.gateway.listening.admin_url}{path}", headers=fields, **LOCAL)

    def reload(self, sections: str) -> dict[str, Any]:
        """Write the file and ask the admin plane."""
        self.write(sections)
        answer = self.post()
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def refused(self, sections: str) -> str:
        """Write the file, ask the admin plane, and be refused with this message."""
        self.write(sections)
        answer = self.post()
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert error["code"] == "invalid_config"
        return str(error["message"])

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.gateway.admin("/api/v1/status")["config"]
        return status

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.gateway.listening.admin_url}/metrics", **LOCAL).text
        (value,) = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(value)

    def chat(self, key: str = "none", **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        body = {**BODY, **fields}
        return httpx.post(
            f"{self.gateway.url}/chat/completions",
            json=body,
            headers=headers,
            **LOCAL,
        )
