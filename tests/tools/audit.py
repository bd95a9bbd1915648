"""``make audit``: known faults of the installed packages, and secrets in the files of the checkout.

Packages are looked up by pip-audit, which asks the advisory database of PyPI; without it or without a network that part
is skipped with a line. Exit status 1 where something was found.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a Google API key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[0-9A-Za-z]{36}|github_pat_[0-9A-Za-z_]{60,})\b",
    "a Hugging Face token": r"\bhf_[0-9A-Za-z]{34}\b",
    "a Slack token": r"\bxox[abprs]-[0-9A-Za-z-]{20,}",
    "a PyPI token": r"\bpypi-[0-9A-Za-z_-]{50,}",
    "a password in an address": r"\b[a-z]+://[^/\s:@{}'\"]+:[^/\s:@{}'\"$<]{3,}@",
}


def secrets(text: str) -> list[tuple[int, str]]:
    """(line, what it looks like) of each."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, name) for number, line in lines for name, form in SECRETS.items() if re.search(form, line)]


def scan(root: Path) -> int:
    """Print the secrets in the files that git tracks under ``root``; returns their number."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        print("secrets: skipped, this is no git checkout")
        return 0
    found = 0
    names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    for name in names:
        for number, kind in secrets((root / name).read_text("utf-8", errors="replace")):
            print(f"secrets: {name}:{number}: looks like {kind}")
            found += 1
    print(f"secrets: {found} in {len(names)} files")
    return found


def packages() -> int:
    """Print known faults of the packages installed beside this interpreter; returns 1 where there are any."""
    beside = Path(sys.executable).with_name("pip-audit")
    tool = str(beside) if beside.exists() else shutil.which("pip-audit")
    if tool is None:
        print("packages: skipped, pip-audit is not installed (pip install pip-audit)")
        return 0
    site = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    )
    command = [tool, "--progress-spinner", "off", "--format", "json", "--path", site.stdout.strip()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    try:
        listed = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines()
        print(f"packages: skipped, pip-audit could not ask ({lines[-1][:160] if lines else 'no reason given'})")
        return 0
    return told(listed)


def told(listed: list[dict[str, Any]]) -> int:
    """Print what pip-audit found, by package; returns 1 where a fault is known. A package without ``vulns`` was not in
    the database that it asked, which may know none at all."""
    for package in listed:
        for fault in package.get("vulns", []):
            mended = ", ".join(fault.get("fix_versions", [])) or "no version yet"
            print(f"packages: {package['name']} {package['version']}: {fault['id']}, mended in {mended}")
    faults = sum(len(package.get("vulns", [])) for package in listed)
    asked = sum("vulns" in package for package in listed)
    print(f"packages: {faults} known faults in {asked} of {len(listed)} packages; the others are not in the database")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(int(scan(Path(__file__).parents[2]) > 0) | packages())
