"""A small server that speaks the part of the Hugging Face hub's API that nrl uses, for one directory of repositories.

    hub_server.py ROOT: serves ROOT/{models,datasets}/ORG/NAME/... on a free port of 127.0.0.1, which it writes to
    ROOT/port. Ends when its standard input is closed.

ROOT/control.json is read at every request. Its keys:
    token        requests need this token, else 401; gated: 403 whatever the token
    drop         this many downloads end after half of their bytes
    busy         this many requests are answered 503
    stall        this many downloads stop after half of their bytes, without an end
    corrupt      downloads of this file name have one wrong byte
    longer       downloads of this file name have more bytes than the list of files says
    size         the size of every file in the list of files
    elsewhere    downloads are redirected to this URL
    no_ranges    downloads always start at their first byte
    hidden       the list of files of a repository is answered 404, as for a token that may only write
Files of 1000 bytes and more, and all *.safetensors, are in large file storage: downloads are redirected to /cdn/,
which refuses a request with a token, as a server of another host should never get it.
Models have the branch main, in models/ORG/NAME, and those that requests create, in branches/ORG/NAME/BRANCH.
ROOT/log has a line for each request: method, path, range, whether it had a token.
"""
import base64
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import sys
import threading
import time
import urllib.parse

root = pathlib.Path(sys.argv[1])
counts = {}
lock = threading.Lock()


def control():
    try:
        return json.loads((root / "control.json").read_text())
    except FileNotFoundError:
        return {}


def take(word):
    """Whether this is one of the first `control[word]` requests of this kind."""
    with lock:
        asked = control().get(word, 0)
        done = counts.get((word, asked), 0)
        if done >= asked:
            return False
        counts[(word, asked)] = done + 1
        return True


def is_lfs(path, data):
    return len(data) >= 1000 or path.endswith(".safetensors")


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def files_of(repository):
    return {str(p.relative_to(repository)): p.read_bytes() for p in sorted(repository.rglob("*")) if p.is_file()}


def folder_of(kind, org, name, revision):
    """Where the files of a branch are; None: there is no such branch or repository."""
    main = root / kind / org / name
    if revision in ("", "main", "refs/pr/1") or (main.is_dir() and revision == commit_of(files_of(main))):
        return main if main.is_dir() else None
    branch = root / "branches" / org / name / revision
    return branch if branch.is_dir() else None


def commit_of(files):
    return hashlib.sha1("".join(f"{p}{git_hash(d)}" for p, d in files.items()).encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        with lock, open(root / "log", "a") as f:
            token = "token" if self.headers.get("Authorization") else "-"
            f.write(f"{self.command} {self.path} {self.headers.get('Range', '-')} {token}\n")

    def answer(self, code, body=b"", headers=()):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def refuses(self):
        """Answers, and says so, if the request may not be served."""
        if take("busy"):
            self.answer(503, b"busy")
            return True
        if control().get("gated"):
            self.answer(403, b"", [("X-Error-Message", "Access to this model is restricted")])
            return True
        token = control().get("token")
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            self.answer(401, b"", [("X-Error-Message", "Invalid credentials")])
            return True
        return False

    def send_file(self, path, data):
        begin = 0
        asked = self.headers.get("Range")
        if asked and not control().get("no_ranges"):
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
        if begin and begin >= len(data):
            return self.answer(416)
        if control().get("corrupt") == path.split("/")[-1]:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if control().get("longer") == path.split("/")[-1]:
            data += bytes(1 << 20)
        part = data[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{git_hash(data)}"')
        self.end_headers()
        if len(part) > 1 and take("drop"):
            self.wfile.write(part[:len(part) // 2])
            self.wfile.flush()
            self.close_connection = True
            return None
        if len(part) > 1 and take("stall"):
            self.wfile.write(part[:len(part) // 2])
            self.wfile.flush()
            time.sleep(60)
            self.close_connection = True
            return None
        return self.wfile.write(part)

    def do_GET(self):
        self.note()
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        words = path.strip("/").split("/")
        if words[0] == "cdn":
            if self.headers.get("Authorization"):
                return self.answer(400, b"a token for another server")
            repository = root.joinpath(*words[1:4])
            return self.send_file(path, files_of(repository)["/".join(words[4:])])
        if self.refuses():
            return None
        if words[0] == "api":
            return self.list_files(words)
        kind = "datasets" if words[0] == "datasets" else "models"
        words = words[1:] if kind == "datasets" else words
        repository = root / kind / words[0] / words[1]
        data = files_of(repository).get("/".join(words[4:])) if words[2] == "resolve" else None
        if data is None:
            return self.answer(404, b"", [("X-Error-Message", "Entry not found")])
        if control().get("elsewhere"):
            return self.answer(302, b"", [("Location", control()["elsewhere"])])
        name = "/".join(words[4:])
        if is_lfs(name, data):
            port = self.server.server_port
            place = f"http://localhost:{port}/cdn/{kind}/{words[0]}/{words[1]}/{urllib.parse.quote(name)}"
            return self.answer(302, b"", [("Location", place)])
        return self.send_file(path, data)

    def list_files(self, words):
        """api/models/ORG/NAME or api/models/ORG/NAME/revision/REVISION"""
        if control().get("hidden") or not folder_of(*words[1:4], "main"):
            return self.answer(404, b"", [("X-Error-Message", "Repository not found")])
        repository = folder_of(*words[1:4], "/".join(words[5:]))
        if not repository:
            return self.answer(404, b"", [("X-Error-Message", "Invalid rev id")])
        files = files_of(repository)
        commit = commit_of(files)
        siblings = []
        for name, data in files.items():
            one = {"rfilename": name, "size": control().get("size", len(data)), "blobId": git_hash(data)}
            if is_lfs(name, data):
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(one)
        return self.answer(200, {"id": f"{words[2]}/{words[3]}", "sha": commit, "siblings": siblings})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.note()
        words = urllib.parse.unquote(self.path).strip("/").split("/")
        if words[0] == "complete":
            parts = [(root / "lfs" / f"{words[1]}.{p['partNumber']}") for p in json.loads(body)["parts"]]
            (root / "lfs" / words[1]).write_bytes(b"".join(p.read_bytes() for p in parts))
            return self.answer(200, {})
        if self.refuses():
            return None
        if words[0] == "verify":
            return self.answer(200 if (root / "lfs" / json.loads(body)["oid"]).exists() else 404, {})
        if words == ["api", "repos", "create"]:
            asked = json.loads(body)
            repository = root / "models" / asked["organization"] / asked["name"]
            if repository.exists():
                return self.answer(409, {"error": "exists"})
            repository.mkdir(parents=True)
            (root / "private").write_text(str(asked.get("private")))
            return self.answer(200, {"url": "created"})
        if words[-2:-1] == ["branch"]:
            main, branch = folder_of(*words[1:4], "main"), root / "branches" / words[2] / words[3] / words[5]
            if not main:
                return self.answer(404, b"", [("X-Error-Message", "Repository not found")])
            if branch.exists():
                return self.answer(409, {"error": "Reference already exists"})
            shutil.copytree(main, branch)
            return self.answer(200, b"OK")
        if words[-2:-1] in (["preupload"], ["commit"]) and not folder_of(*words[1:4], words[5]):
            return self.answer(404, b"", [("X-Error-Message", "Invalid rev id")])
        if words[-2:-1] == ["preupload"]:
            return self.answer(200, {"files": [
                {"path": f["path"], "uploadMode": "lfs" if f["size"] >= 1000 or f["path"].endswith(".safetensors")
                 else "regular"} for f in json.loads(body)["files"]]})
        if words[-1] == "batch":
            port = self.server.server_port
            objects = []
            for o in json.loads(body)["objects"]:
                one = {"oid": o["oid"], "size": o["size"]}
                if not (root / "lfs" / o["oid"]).exists():
                    upload = {"href": f"http://127.0.0.1:{port}/put/{o['oid']}"}
                    if control().get("part_size"):
                        n = -(-o["size"] // control()["part_size"])
                        upload = {"href": f"http://127.0.0.1:{port}/complete/{o['oid']}", "header": {
                            "chunk_size": str(control()["part_size"]),
                            **{f"{i + 1:05d}": f"http://127.0.0.1:{port}/part/{o['oid']}/{i + 1}" for i in range(n)}}}
                    one["actions"] = {"upload": upload, "verify": {"href": f"http://127.0.0.1:{port}/verify"}}
                objects.append(one)
            return self.answer(200, {"objects": objects}, [("Content-Type", "application/vnd.git-lfs+json")])
        if words[-2:-1] == ["commit"]:
            repository = folder_of(*words[1:4], words[5])
            for line in body.decode().splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "file":
                    data = base64.b64decode(value["content"], validate=True)
                elif entry["key"] == "lfsFile":
                    data = (root / "lfs" / value["oid"]).read_bytes()
                    if hashlib.sha256(data).hexdigest() != value["oid"] or len(data) != value["size"]:
                        return self.answer(400, b"", [("X-Error-Message", "hash mismatch")])
                else:
                    (root / "summary").write_text(value["summary"])
                    continue
                place = repository / value["path"]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            return self.answer(200, {"commitOid": commit_of(files_of(repository)), "commitUrl": "x"})
        return self.answer(404)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.note()
        words = self.path.strip("/").split("/")
        if self.headers.get("Authorization"):
            return self.answer(400, b"a token for another server")
        (root / "lfs").mkdir(exist_ok=True)
        (root / "lfs" / ".".join(words[1:])).write_bytes(body)
        return self.answer(200, b"", [("ETag", f'"{words[-1]}"')])


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a client that closed its connection


server = Server(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
(root / "port.tmp").write_text(str(server.server_port))
os.rename(root / "port.tmp", root / "port")
sys.stdin.read()
