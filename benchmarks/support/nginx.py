"""nginx as an engine that answers at once, and as a bare proxy: the floor under a gateway."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.support.payloads import (
    CHAT_MODEL,
    STREAM_MODEL,
    Events,
    chat_answer,
    models_answer,
)
from benchmarks.support.processes import NotReadyError, Service, free_port
from benchmarks.support.stacks import Stack, Upstreams, first_line

__all__ = ["NginxUpstream", "nginx_config", "proxy_config", "start_nginx_proxy"]

_COMMON = """\
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    server_tokens off;
    default_type application/json;
    keepalive_timeout 3600s;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    root {directory};
"""
_ENGINE = (
    _COMMON
    + """\
    open_file_cache max=16 inactive=1h;
    server {{
        listen 127.0.0.1:{chat_port} backlog=4096;
        location = /health {{ return 200 '{{}}'; }}
        location = /v1/models {{ return 200 '{chat_models}'; }}
        location = /v1/chat/completions {{ return 200 '{answer}'; }}
    }}
    server {{
        listen 127.0.0.1:{stream_port} backlog=4096;
        # A file answers GET only: the 405 of a POST is turned into the file itself.
        error_page 405 =200 /events;
        location = /health {{ return 200 '{{}}'; }}
        location = /v1/models {{ return 200 '{stream_models}'; }}
        location = /v1/chat/completions {{ rewrite ^ /events last; }}
        location = /events {{
            default_type text/event-stream;
            output_buffers 1 128k;
            # A substitution that never matches drops Content-Length: the body is chunked.
            sub_filter '@never@' '';
            sub_filter_types text/event-stream;
        }}
    }}
}}
"""
)
_PROXY = (
    _COMMON
    + """\
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    upstream whole {{ server 127.0.0.1:{chat_upstream}; keepalive 256; }}
    upstream events {{ server 127.0.0.1:{stream_upstream}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{chat_port} backlog=4096;
        location / {{ proxy_pass http://whole; }}
    }}
    server {{
        listen 127.0.0.1:{stream_port} backlog=4096;
        location / {{ proxy_pass http://events; proxy_buffering off; }}
    }}
}}
"""
)


def nginx_config(directory: Path, *, chat_port: int, stream_port: int) -> str:
    """The configuration text; `directory` is where nginx finds `events` and keeps its files."""
    return _ENGINE.format(
        directory=directory,
        chat_port=chat_port,
        stream_port=stream_port,
        chat_models=models_answer(CHAT_MODEL).decode(),
        stream_models=models_answer(STREAM_MODEL).decode(),
        answer=chat_answer().decode(),
    )


def proxy_config(directory: Path, upstreams: Upstreams, *, chat_port: int, stream_port: int) -> str:
    """nginx as a bare reverse proxy: no keys, no parsing of bodies, no metering."""
    return _PROXY.format(
        directory=directory,
        chat_port=chat_port,
        stream_port=stream_port,
        chat_upstream=upstreams.chat_port,
        stream_upstream=upstreams.stream_port,
    )


def start_nginx_proxy(upstreams: Upstreams, directory: Path, *, core: int) -> Stack:
    """The floor under every gateway on this machine: what forwarding alone costs, in C."""
    program = _program()
    directory.mkdir(parents=True, exist_ok=True)
    stack = Stack("nginx proxy", _version(program), chat_port=free_port(), stream_port=free_port())
    config = directory / "nginx.conf"
    config.write_text(
        proxy_config(directory, upstreams, chat_port=stack.chat_port, stream_port=stack.stream_port)
    )
    argv = [program, "-p", str(directory), "-c", str(config)]
    service = Service("nginx proxy", argv, core=core, log=directory / "nginx.log")
    stack.start(service, f"http://127.0.0.1:{stack.chat_port}/health", timeout_s=10)
    return stack


def _program() -> str:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise NotReadyError("nginx is not installed: apt-get install nginx")
    return program


def _version(program: str) -> str:
    return first_line([program, "-v"]).rpartition("/")[2]


class NginxUpstream(Service):
    """nginx on one core. `chat_port` answers whole, `stream_port` with `events`."""

    def __init__(self, directory: Path, events: Events, *, core: int) -> None:
        program = _program()
        self.version = _version(program)
        self.chat_port, self.stream_port = free_port(), free_port()
        (directory / "events").write_bytes(events.body)
        config = directory / "nginx.conf"
        config.write_text(
            nginx_config(directory, chat_port=self.chat_port, stream_port=self.stream_port)
        )
        super().__init__(
            "nginx",
            [program, "-p", str(directory), "-c", str(config)],
            core=core,
            log=directory / "nginx.log",
        )
        try:
            for port in (self.chat_port, self.stream_port):
                self.wait_ready(f"http://127.0.0.1:{port}/health", timeout_s=10)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> NginxUpstream:
        return self
