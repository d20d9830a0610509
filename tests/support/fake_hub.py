"""A local stand-in of the Hugging Face Hub's API: repositories in memory, on loopback."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """The state of the stand-in.

    Attributes:
        files: content by repository and name.
        private: repositories that were created as private.
        refuse: status with which every request is answered; None: answer them.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.refuse: int | None = None
        self.endpoint = ""

    def post(self, path: str, body: bytes) -> Any:
        """Answer of a POST; None: there is no such address."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.files.setdefault(repo, {})
            is_private = asked.get("private") or asked.get("visibility") == "private"
            self.private |= {repo} if is_private else set()
            return {"url": f"{self.endpoint}/{repo}"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", path):
            repo, what = found.groups()
            if what == "preupload":
                names = [each["path"] for each in json.loads(body)["files"]]
                return {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"commitUrl": f"{self.endpoint}/{repo}/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
        return None

    def get(self, path: str) -> bytes | None:
        """Content of a file by its address, or JSON about a repository; None: there is none."""
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            return self.files.get(found[1], {}).get(found[2])
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/[^/]+)?", path)
        if found is None or found[1] not in self.files:
            return None
        files = self.files[found[1]].items()
        if found[2] == "tree":
            each = [{"type": "file", "path": name, "size": len(content), "oid": name} for name, content in files]
            return json.dumps(each).encode()
        siblings = [{"rfilename": name, "size": len(content)} for name, content in files]
        return json.dumps({"id": found[1], "sha": COMMIT, "siblings": siblings}).encode()


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve a stand-in during the block."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _send(self, status: int, content: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = None if hub.refuse else hub.post(self.path.partition("?")[0], body)
            if answer is None:
                self._send(hub.refuse or 404)
            else:
                self._send(200, json.dumps(answer).encode(), Content_Type="application/json")

        def do_GET(self) -> None:
            content = None if hub.refuse else hub.get(self.path.partition("?")[0])
            if content is None:
                self._send(hub.refuse or 404, X_Error_Code="RepoNotFound")
                return
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            self._send(200, content, ETag=etag, X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
