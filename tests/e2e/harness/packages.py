"""Tiny packages that tests make, and the indexes that they are found in."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

from harness.outside import ALLOWED

NAME = "sandaltiny"
INDEX = f"http://{ALLOWED}:8080"


def wheel(folder: Path, name: str = NAME, version: str = "1.0", value: str = "from pip") -> Path:
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as out:
        for file, text in ((f"{name}.py", f"where = {value!r}\n"), (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
                           (f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                           (f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n"),
                           (f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/entry_points.txt,,\n{info}/RECORD,,\n")):
            out.writestr(file, text + (f"\n\ndef main():\n    print('ran {name}')\n" if file.endswith(".py") else ""))
    return path


def tar(root: str, files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{root}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def make_pip(folder: Path) -> None:
    place = folder / "simple" / NAME
    place.mkdir(parents=True)
    file = wheel(place).name
    (place / "index.html").write_text(f'<!DOCTYPE html><a href="{file}">{file}</a>')


def make_npm(folder: Path) -> None:
    """The document of a package and its archive, for each of two names."""
    place = folder / "npm"
    place.mkdir()
    for name in (NAME, f"{NAME}-global"):
        package = {"name": name, "version": "1.0.0", "main": "index.js", "bin": {name: "cli.js"}}
        data = tar("package", {"package.json": json.dumps(package), "index.js": f"module.exports = 'from npm: {name}';\n",
                               "cli.js": f"#!/usr/bin/env node\nconsole.log('ran {name}');\n"})
        (place / f"{name}-1.0.0.tgz").write_bytes(data)
        dist = {"tarball": f"{INDEX}/npm/{name}-1.0.0.tgz", "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
        (place / name).write_text(json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}))


def make_cran(folder: Path) -> None:
    place = folder / "cran" / "src" / "contrib"
    place.mkdir(parents=True)
    fields = f"Package: {NAME}\nVersion: 1.0\nLicense: MIT\nNeedsCompilation: no\n"
    (place / f"{NAME}_1.0.tar.gz").write_bytes(tar(NAME, {
        "DESCRIPTION": fields + "Title: Tiny\nDescription: Of a test.\nAuthor: A Test\nMaintainer: A Test <test@localhost>\n",
        "NAMESPACE": "export(where)\n", "R/where.R": "where <- function() 'from R'\n"}))
    (place / "PACKAGES").write_text(fields + "\n")
    (place / "PACKAGES.gz").write_bytes(gzip.compress(fields.encode() + b"\n"))


def make_apt(folder: Path) -> None:
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(f"Package: {NAME}\nVersion: 1.0\nArchitecture: all\nMaintainer: A Test <test@localhost>\nDescription: tiny\n")
    (tree / "usr/bin" / NAME).write_text("#!/bin/sh\necho from apt\n")
    (tree / "usr/bin" / NAME).chmod(0o755)
    place = folder / "apt"
    place.mkdir()
    deb = place / f"{NAME}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)], check=True, stdout=subprocess.DEVNULL)
    data = deb.read_bytes()
    (place / "Packages").write_text((tree / "DEBIAN/control").read_text() + f"Filename: ./{deb.name}\nSize: {len(data)}\n"
                                    f"SHA256: {hashlib.sha256(data).hexdigest()}\n")
