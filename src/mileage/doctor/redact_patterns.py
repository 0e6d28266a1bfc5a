"""What secrets and people's words look like in logs, command lines, environments and manifests."""

from __future__ import annotations

import re

__all__ = ["COUNTS", "HIDDEN", "PROMPTS", "SECRETS", "is_secret_name"]

HIDDEN = "***"

_KEYS = r"(?:api|access|account|private|secret|master|admin|ssh|ssl|encryption|signing|license)"
_NAME = (
    rf"(?:{_KEYS}[-_]?key|token|secret|secret[-_]access[-_]key|passw(?:or)?d|passphrase|pwd"
    r"|credential|signature|webhook|client[-_]secret|(?:db|user|root|admin|smtp|mysql|redis)_?pass|(?:(?<![a-z])(?:auth|dsn|salt)))s?"
)
"""How names of secrets end. `auth` and the like only as words of their own: a pass is a step of a
model as a rule."""

_QUOTED = r"'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)"
_LIST = r"\[[^\]]*(?:\]|$)|\((?=['\"])[^)]*(?:\)|$)"
_BARE = r"[^\s,'\")}\]\[{&;(]{3,}"

_NOTHING = r"(?!(?:None|null|True|False|true|false)\b|['\"]?\*|''|\"\"|\[\])"

SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"(?i)((?:authorization|cookie)['\"]?\s*[:=]\s*['\"]?)"
            r"(?!\s*(?:bearer|basic) \*|\*)[^'\"\n]+"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)(://[^\s/:@]*):[^\s/@]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(?i)(://)[^\s/:@]{8,}@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(://[^\s'\"?]{0,2000}\?)[^\s'\"]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(://hooks\.[^\s'\"/]+/)[^\s'\"]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)(\s(?:-u|--user|--proxy-user)[\s=]+['\"]?)[^\s:'\"]+:\S+"), rf"\1{HIDDEN}"),
    (re.compile(r"-----BEGIN [A-Z ]*KEY-----[\s\S]*"), HIDDEN),
    (re.compile(r"^\s*[A-Za-z0-9+/]{60,}={0,2}\s*$", re.MULTILINE), HIDDEN),
    (
        re.compile(
            r"\b(sk|pk|rk|hf|github_pat|gh[opsu]|glpat|nvapi|npm|xox[abp]|AKIA|ASIA|AIza|dapi)"
            r"(?=[-_A-Za-z0-9]*[-0-9A-Z])(?!_[a-z_]+\b)[-_A-Za-z0-9]{8,}"
        ),
        rf"\1-{HIDDEN}",
    ),
    (re.compile(r"\bhf_[a-z]{10,}\b(?!\s*[=:({\[])"), f"hf-{HIDDEN}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"), HIDDEN),
    (re.compile(r"(?i)\b(token\s+)(?=\S*\d)(?=\S*[a-z])[\w.+/=-]{10,}"), rf"\1{HIDDEN}"),
    (
        re.compile(
            rf"(?i)(name['\"]?\s*[:=]\s*['\"]?[\w.-]{{0,80}}{_NAME}['\"]?\s*,?\s*['\"]?value['\"]?"
            rf"\s*[:=]\s*)(?:{_QUOTED}|{_BARE})"
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(
            rf"(?i)((?<![\w-])--?[\w-]{{0,80}}{_NAME}['\"]?(?:\s*,\s*|\s+))(?!-)(?:{_QUOTED}|{_BARE})"
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(rf"(?i)({_NAME}['\"]?\s*[=:]\s*){_NOTHING}(['\"])(?:[^'\"\\]|\\.)*?\2"),
        rf"\1\2{HIDDEN}\2",
    ),
    (
        re.compile(rf"(?i)({_NAME}['\"]?\s*[=:]\s*){_NOTHING}(?:{_LIST}|{_QUOTED}|{_BARE})"),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(r"\b(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{36,}\b"),
        HIDDEN,
    ),
)
"""Patterns of secrets, and what is left of them. Counts such as `max_tokens=256` are no secrets:
see `COUNTS`."""

COUNTS = re.compile(r"(?i)tokens?['\"]?\s*[=:]\s*['\"]?[\d.]+['\"]?(?![\w-])")

PROMPTS = re.compile(
    r"(?i)((?<![\w-])(?:prompt|text|content|messages|input_ids|prompt_token_ids|generated_text"
    rf"|reasoning_content)['\"]?\s*[:=]\s*)(?:{_QUOTED}|\[.*)"
)
"""What users wrote and what was answered, as engines log it with their requests."""

_SECRET_KEY = re.compile(rf"(?i)(?:^|.*[._-]){_NAME}$|(?:.*-)?(?:authorization|cookie)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_COUNT_KEY = re.compile(r"(?i)tokens$")


def is_secret_name(name: str) -> bool:
    """Does a key, a variable or an option of this name hold a secret?"""
    bare = _CAMEL.sub("_", name.strip("-"))
    return bool(_SECRET_KEY.match(bare)) and not _COUNT_KEY.search(bare)
